-- Delete messages of one state of an RSMQ queue for a background job, but none that a program may have received.
--
-- KEYS[1]  zset       {namespace}:<queue>                  ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q                HASH   attributes, bodies, counts
-- KEYS[3]  notes      {namespace}:<queue>:mq:notes         HASH
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled     ZSET
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried       ZSET   score as in zset: the message waits for a retry
-- KEYS[6]  jobs       {namespace}:<queue>:mq:jobs          HASH   see parts/jobs
-- ARGV[1..5]          see parts/jobs
-- then ids
--
-- Returns for each: 'DELETED', 'ELSEWHERE' when it is not in that state, or 'MISSING' when it is no longer there; or
-- 'STOPPED' when this worker does not run the job.

-- with types
-- with clock
-- with rsmq_messages
-- with rsmq_states
-- with jobs
local zset, hash, notes, unhandled, retried, jobs = unpack(KEYS)
check_types({ [zset] = 'zset', [hash] = 'hash', [notes] = 'hash', [unhandled] = 'zset' })
check_types({ [retried] = 'zset', [jobs] = 'hash' })
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

local reply = {}
for at = 6, #ARGV do
  local id = ARGV[at]
  local score, word = redis.call('zscore', zset, id), 'MISSING'
  if score then
    local state = tonumber(score) <= now_ms() and 'READY' or state_of(zset, hash, unhandled, retried, id)
    word = state and string.lower(state) == ARGV[5] and 'DELETED' or 'ELSEWHERE'
  end
  if word == 'DELETED' then
    remove_message(zset, hash, notes, id)
    redis.call('zrem', unhandled, id)
    redis.call('zrem', retried, id)
  end
  reply[#reply + 1] = word
end
count_step(jobs, ARGV, reply, now_ms())
return reply
