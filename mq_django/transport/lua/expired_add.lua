-- Remember the ids of messages that are discarded because they have expired: those of the last week, at most 10,000.
--
-- KEYS[1]  expired   {queue}:expired   ZSET   score: when, ms
-- ARGV     ids
--
-- Returns 'ADDED'. If the key has another type, nothing is written: the messages are discarded all the same.

-- with clock
local try, expired, now, week = redis.pcall, KEYS[1], now_ms(), 604800000
-- First, because Redis allows it when memory is out. The writes after it are then allowed, too.
try('zremrangebyscore', expired, '-inf', now - week)
for _, id in ipairs(ARGV) do
  try('zadd', expired, 'nx', now, id)
end
try('zremrangebyrank', expired, 0, -10001)
try('pexpire', expired, week)
return 'ADDED'
