-- Put dead letters back into their RSMQ queue, with no attempts counted; or one with another body, as a new message.
--
-- KEYS[1]  dead      {namespace}:<queue>:mq:dead          STREAM
-- KEYS[2]  dead ids  {namespace}:<queue>:mq:dead-ids      HASH    message id -> entry of `dead`
-- KEYS[3]  groups    {namespace}:<queue>:mq:dead-groups   HASH    see parts/dead_letters
-- KEYS[4]  jobs      {namespace}:<queue>:mq:jobs          HASH    see parts/jobs
-- KEYS[5]  zset      {namespace}:<queue>                  ZSET    score: when visible, ms
-- KEYS[6]  hash      {namespace}:<queue>:Q                HASH    attributes, bodies, counts
-- KEYS[7]  notes     {namespace}:<queue>:mq:notes         HASH    id:story, and more
-- ARGV[1..5]         see parts/jobs
-- ARGV[6]  channel   gets the new first time at which a message is visible
-- ARGV[7]  id        of the new message; '' to redrive
-- ARGV[8]  body      of the new message
-- then entries of `dead`, at most 500
--
-- Returns for each: 'REDRIVEN', 'MISSING' when it no longer exists, or 'UNDECODABLE' when it is not a valid message, or
-- its id is in use; or 'STOPPED' when this worker does not run the job.

-- with types
-- with clock
-- with dead_letters
-- with jobs
local dead, ids, groups, jobs, zset, hash, notes = unpack(KEYS)
check_types({ [dead] = 'stream', [ids] = 'hash', [jobs] = 'hash', [zset] = 'zset' })
check_types({ [hash] = 'hash', [notes] = 'hash' })
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

local now, new_id = now_ms(), ARGV[7] ~= '' and ARGV[7]

local function redrive(entry)
  local found = redis.call('xrange', dead, entry, entry)[1]
  local _, values = message_fields(found and found[2] or {}, {})
  local id, body = new_id or values.id, new_id and ARGV[8] or values.deadbody
  if not found then
    return 'MISSING'
  elseif values.deadraw or (id and redis.call('hexists', hash, id) == 1) then
    return 'UNDECODABLE'
  elseif not id or not body then
    return 'MISSING'
  end
  redis.call('zadd', zset, string.format('%.0f', now), id)
  redis.call('hset', hash, id, body)
  local history = history_of(values)
  if new_id then
    increment(hash, 'totalsent', 1)
  elseif history then
    redis.call('hset', notes, id .. ':story', history)
  end
  remove_dead_letter(dead, ids, entry, found[2])
  return 'REDRIVEN'
end

local reply = {}
for i = 9, #ARGV do
  reply[#reply + 1] = redrive(ARGV[i])
end
uncount_removed(groups)
count_step(jobs, ARGV, reply, now)
redis.call('publish', ARGV[6], string.format('due %.0f', now))
return reply
