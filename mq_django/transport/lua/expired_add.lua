-- Remember the ids of messages that are discarded because they have expired: those of the last week, at most 10,000.
--
-- KEYS[1]  expired   {queue}:expired   ZSET   score: when, ms
-- ARGV     ids
--
-- Returns 'ADDED'; or 'SKIPPED' if the key has another type: no error, because the messages are discarded all the same.

-- with clock
-- with types
local expired, now, week = KEYS[1], now_ms(), 604800000
if wrong_type({ [expired] = 'zset' }) then
  return 'SKIPPED'
end
-- First, because Redis allows it when memory is out. The writes after it are then allowed, too.
redis.call('zremrangebyscore', expired, '-inf', now - week)
for _, id in ipairs(ARGV) do
  redis.call('zadd', expired, 'nx', now, id)
end
redis.call('zremrangebyrank', expired, 0, -10001)
redis.call('pexpire', expired, week)
return 'ADDED'
