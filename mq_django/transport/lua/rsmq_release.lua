-- Make unhandled messages visible: of one name, or of all.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET   score: hash of the name
-- ARGV[1]  score      of the name; '-inf' with the last argument '+inf': of all names
-- ARGV[2]  limit      messages, at most 500
-- ARGV[3]  channel    gets the new first time at which a message is visible
-- ARGV[4]  last       the highest score; without it, that of the name
--
-- Returns how many were made visible.

-- with clock
-- with rsmq
local zset, unhandled = unpack(KEYS)
allow_writes(zset)
local now, released = now_ms(), 0
for _, id in ipairs(redis.call('zrangebyscore', unhandled, ARGV[1], ARGV[4] or ARGV[1], 'limit', 0, ARGV[2])) do
  redis.call('zrem', unhandled, id)
  if redis.call('zscore', zset, id) then
    redis.call('zadd', zset, string.format('%.0f', now), id)
    released = released + 1
  end
end
if released > 0 then
  redis.call('publish', ARGV[3], string.format('due %.0f', now))
end
return released
