-- Put dead letters back into their queue, with no attempts counted. The head of a key goes before all that is ready, and
-- keeps its token.
--
-- KEYS[1]  dead      {queue}:dead         STREAM
-- KEYS[2]  dead ids  {queue}:dead-ids     HASH    message id -> entry of `dead`
-- KEYS[3]  groups    {queue}:dead-groups  HASH    see parts/dead_letters
-- KEYS[4]  jobs      {queue}:jobs         HASH    see parts/jobs
-- KEYS[5]  ready     {queue}:ready        STREAM
-- KEYS[6]  cancels   {queue}:cancels      ZSET    requests to cancel, which are forgotten; optional, with the next
-- KEYS[7]  notes     {queue}:step-notes   HASH    see parts/step_notes
-- KEYS[8]  permits   {queue}:permits      ZSET    see parts/tokens; optional, with the next two
-- KEYS[9]  front     {queue}:front        STREAM
-- ARGV[1..5]          see parts/jobs
-- ARGV[6]  group      only with KEYS[8]
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
if cancels then
  check_types({ [cancels] = 'zset' })
end
if permits then
  check_types({ [permits] = 'zset', [front] = 'stream' })
end
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

-- A redriven message starts over: its attempts are not counted, and it does not expire. Its history is written below.
local dropped = { attempt = 1, expires = 1, story = 1 }

notes = notes and usable_notes(notes)
local has_requests = cancels and redis.call('exists', cancels) == 1

local function redrive(entry)
  local found = redis.call('xrange', dead, entry, entry)[1]
  if not found then
    return 'MISSING'
  end
  local fields, values = message_fields(found[2], dropped)
  if not fields then
    return 'UNDECODABLE'
  end
  local history = history_of(values)
  if history then
    fields[#fields + 1] = 'story'
    fields[#fields + 1] = history
  end
  local is_head = permits and redis.call('zscore', permits, 'd-' .. entry)
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
  if has_requests and values.id then
    redis.call('zrem', cancels, values.id)
  end
  remove_dead_letter(dead, ids, entry, found[2])
  note_step(notes, values.id or '', 'redriven', '', '')
  return 'REDRIVEN'
end

local reply, failed = {}, nil
for i = permits and 7 or 6, #ARGV do
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
