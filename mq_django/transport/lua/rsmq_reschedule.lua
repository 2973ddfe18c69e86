-- Let a delayed message of an RSMQ queue be seen at another time.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[4]  retried    {namespace}:<queue>:mq:retried     ZSET   as in zset: with the same score, nobody has it
-- ARGV[1]  id
-- ARGV[2]  mode       '+' (ms from now) or '=' (ms since 1970)
-- ARGV[3]  ms
-- ARGV[4]  channel    told that something is visible earlier than was known
--
-- Returns 'RESCHEDULED', or 'MISSING' when it is not delayed.

-- with clock
-- with rsmq_waits
local zset, hash, unhandled, retried = unpack(KEYS)
local id = ARGV[1]
if waits(zset, hash, unhandled, retried, id) ~= 'DELAYED' then
  return 'MISSING'
end
local score = due_at(ARGV[2], ARGV[3], now_ms())
redis.call('zadd', zset, score, id)
if redis.call('hexists', hash, id .. ':rc') == 1 then
  redis.call('zadd', retried, score, id)
end
redis.call('publish', ARGV[4], 'due ' .. score)
return 'RESCHEDULED'
