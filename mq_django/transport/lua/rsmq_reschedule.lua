-- Change when a delayed message of an RSMQ queue becomes visible.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[4]  retried    {namespace}:<queue>:mq:retried     ZSET   score as in zset: the message waits for a retry
-- ARGV[1]  id
-- ARGV[2]  mode       '+' (ms from now) or '=' (ms since 1970)
-- ARGV[3]  ms
-- ARGV[4]  channel    gets the new first time at which a message is visible
--
-- Returns 'RESCHEDULED', or 'MISSING' when it is not delayed.

-- with clock
-- with rsmq_states
local zset, hash, unhandled, retried = unpack(KEYS)
local id = ARGV[1]
if state_of(zset, hash, unhandled, retried, id) ~= 'DELAYED' then
  return 'MISSING'
end
local score = due_at(ARGV[2], ARGV[3], now_ms())
redis.call('zadd', zset, score, id)
if redis.call('hexists', hash, id .. ':rc') == 1 then
  redis.call('zadd', retried, score, id)
end
redis.call('publish', ARGV[4], 'due ' .. score)
return 'RESCHEDULED'
