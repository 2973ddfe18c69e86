-- Put dead letters back into their RSMQ queue, with no attempts counted.
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

local now, reply = now_ms(), {}
for i = 7, #ARGV do
  local found = redis.call('xrange', dead, ARGV[i], ARGV[i])[1]
  local _, values = message_fields(found and found[2] or {}, {})
  if values.deadraw or (values.id and redis.call('hexists', hash, values.id) == 1) then
    reply[#reply + 1] = 'UNDECODABLE'
  elseif values.id and values.deadbody then
    redis.call('zadd', zset, string.format('%.0f', now), values.id)
    redis.call('hset', hash, values.id, values.deadbody)
    local history = history_of(values)
    if history then
      redis.call('hset', notes, values.id .. ':story', history)
    end
    remove_dead_letter(dead, ids, ARGV[i], found[2])
    reply[#reply + 1] = 'REDRIVEN'
  else
    reply[#reply + 1] = 'MISSING'
  end
end
uncount_removed(groups)
count_step(jobs, ARGV, reply, now)
redis.call('publish', ARGV[6], string.format('due %.0f', now))
return reply
