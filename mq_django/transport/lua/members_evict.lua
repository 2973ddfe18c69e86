-- Declare a silent supervisor dead; its late heartbeat fails. One caller succeeds and reclaims its deliveries. Another one
-- may do so 10 s later, if the supervisor is still there: then the first one has failed.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- ARGV[1]  supervisor
-- ARGV[2]  count        its heartbeat counter when the caller read it, or '' if it had none
--
-- Returns 'EVICTED', or 'ALIVE' when it has sent a heartbeat since, or another caller evicted it first.

-- with clock
-- with numbers
local consumers, beat, evicted = KEYS[1], 'beat:' .. ARGV[1], 'evicted:' .. ARGV[1]
if (redis.call('hget', consumers, beat) or '') ~= ARGV[2] then
  return 'ALIVE'
end
local now = now_ms()
local since = now - number_of(redis.call('hget', consumers, evicted))
if since >= 0 and since < 10000 then
  return 'ALIVE'
end
redis.call('hdel', consumers, beat)
redis.call('hset', consumers, evicted, now)
return 'EVICTED'
