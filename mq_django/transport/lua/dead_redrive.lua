-- Put dead letters back into their queue, with no attempts counted; or one with other data, as a new message. The head of a
-- key goes before all that is ready, and keeps its token.
--
-- KEYS[1]  dead      {queue}:dead         STREAM
-- KEYS[2]  dead ids  {queue}:dead-ids     HASH    message id -> entry of `dead`
-- KEYS[3]  groups    {queue}:dead-groups  HASH    see parts/dead_letters
-- KEYS[4]  jobs      {queue}:jobs         HASH    see parts/jobs
-- KEYS[5]  ready     {queue}:ready        STREAM
-- KEYS[6]  cancels   {queue}:cancels      ZSET    requests to cancel, which are forgotten
-- KEYS[7]  notes     {queue}:step-notes   HASH    see parts/step_notes
-- KEYS[8]  permits   {queue}:permits      ZSET    see parts/tokens
-- KEYS[9]  front     {queue}:front        STREAM
-- ARGV[1..5]         see parts/jobs
-- ARGV[6]  group
-- ARGV[7]  id        of the new message; '' to redrive
-- ARGV[8]  data      of the new message: JSON text
-- then entries of `dead`, at most 500
--
-- Returns for each: 'REDRIVEN', 'MISSING' when it no longer exists, or 'UNDECODABLE' when it is not a valid message; or
-- 'STOPPED' when this worker does not run the job.

-- with types
-- with clock
-- with dead_letters
-- with jobs
-- with step_notes
-- with line_heads
local dead, ids, groups, jobs, ready, cancels, notes, permits, front = unpack(KEYS)
check_types({ [dead] = 'stream', [ids] = 'hash', [jobs] = 'hash', [ready] = 'stream' })
check_types({ [cancels] = 'zset', [permits] = 'zset', [front] = 'stream' })
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

local new_id, data = ARGV[7] ~= '' and ARGV[7], ARGV[8]
-- It starts over: its attempts are not counted, and it does not expire. A new message has no history either, and none of the
-- fields that belong to the old id.
local dropped = { attempt = 1, expires = 1, story = 1 }
for _, name in ipairs(new_id and { 'id', 'time', 'claim', 'data', 'message' } or {}) do
  dropped[name] = 1
end
notes = usable(notes, 'hash')
local has_requests = redis.call('exists', cancels) == 1

local function redrive(entry)
  local found = redis.call('xrange', dead, entry, entry)[1]
  if not found then
    return 'MISSING'
  end
  local fields, values = message_fields(found[2], dropped)
  if not fields then
    return 'UNDECODABLE'
  end
  local name, value = 'story', history_of(values)
  if new_id then
    name, value, fields = 'data', data, { 'id', new_id, unpack(fields) }
  end
  if value then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local is_head = redis.call('zscore', permits, 'd-' .. entry)
  local target, added = ready, nil
  if is_head then
    target, added = add_first(ready, front, ARGV[6], fields)
  else
    added = redis.pcall('xadd', ready, '*', unpack(fields))
  end
  if type(added) == 'table' then
    return added
  end
  if is_head then
    pass_token(permits, 'd-' .. entry, token_of(target, added))
  end
  local id = new_id or values.id or ''
  if has_requests then
    redis.call('zrem', cancels, id)
  end
  remove_dead_letter(dead, ids, entry, found[2])
  note_step(notes, id, 'redriven', '', '')
  return 'REDRIVEN'
end

local reply, failed = {}, nil
for i = 9, #ARGV do
  local result = redrive(ARGV[i])
  if type(result) == 'table' then
    failed = result
    break
  end
  reply[#reply + 1] = result
end
uncount_removed(groups)
if failed then
  return failed
end
count_step(jobs, ARGV, reply, now_ms())
return reply
