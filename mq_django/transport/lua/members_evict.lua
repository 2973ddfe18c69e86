-- Take a silent supervisor for dead, so that one reclaims what its consumers hold and a late heartbeat learns of it.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- ARGV[1]  supervisor
-- ARGV[2]  count        its heartbeats when it was judged, or '' when it had none
--
-- Returns 'EVICTED', or 'ALIVE' when it has beaten since, or somebody else evicted it first.

if (redis.call('hget', KEYS[1], 'beat:' .. ARGV[1]) or '') ~= ARGV[2] then
  return 'ALIVE'
end
redis.call('hdel', KEYS[1], 'beat:' .. ARGV[1])
return 'EVICTED'
