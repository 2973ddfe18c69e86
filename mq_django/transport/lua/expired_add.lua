-- Remember the ids of messages that are discarded because they have expired: those of the last week, at most 10,000.
--
-- KEYS[1]  expired   {queue}:expired   ZSET     score: when, ms
-- KEYS[2]  stream    {queue}:ready, :urgent or :log   STREAM   of the deliveries; optional
-- ARGV     ids; with a stream: see ids_of_held in parts/held
--
-- Returns 'ADDED'; or 'SKIPPED' if the key has another type: no error, because the messages are discarded all the same.

-- with clock
-- with held
-- with types
local expired, now, week = KEYS[1], now_ms(), 604800000
if wrong_type({ [expired] = 'zset' }) then
  return 'SKIPPED'
end
-- First, because Redis allows it when memory is out. The writes after it are then allowed, too.
redis.call('zremrangebyscore', expired, '-inf', now - week)
for _, id in ipairs(ids_of_held(KEYS[2], ARGV)) do
  redis.call('zadd', expired, 'nx', now, id)
end
redis.call('zremrangebyrank', expired, 0, -10001)
redis.call('pexpire', expired, week)
return 'ADDED'
