-- Declare a silent supervisor dead. Exactly one caller succeeds and reclaims its deliveries; its late heartbeat fails.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- ARGV[1]  supervisor
-- ARGV[2]  count        its heartbeat counter when the caller read it, or '' if it had none
--
-- Returns 'EVICTED', or 'ALIVE' when it has sent a heartbeat since, or another caller evicted it first.

if (redis.call('hget', KEYS[1], 'beat:' .. ARGV[1]) or '') ~= ARGV[2] then
  return 'ALIVE'
end
redis.call('hdel', KEYS[1], 'beat:' .. ARGV[1])
return 'EVICTED'
