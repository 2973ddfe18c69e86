-- Change when a message of an RSMQ queue becomes visible.
--
-- KEYS[1]  zset     {namespace}:<queue>              ZSET   score: when visible, ms
-- KEYS[2]  hash     {namespace}:<queue>:Q            HASH   attributes, bodies, counts
-- ARGV[1]  id
-- ARGV[2]  ms       from now
-- ARGV[3]  channel  gets the new first time at which a message is visible
--
-- Returns 1; 0 when the message does not exist; or 'NOQUEUE'.

-- with clock
-- with rsmq
if not attributes(KEYS[2]) then
  return 'NOQUEUE'
end
if not redis.call('zscore', KEYS[1], ARGV[1]) then
  return 0
end
local first = redis.call('zrange', KEYS[1], 0, 0, 'withscores')[2]
redis.call('zadd', KEYS[1], string.format('%.0f', now_ms() + ARGV[2]), ARGV[1])
tell_first(KEYS[1], first, ARGV[3])
return 1
