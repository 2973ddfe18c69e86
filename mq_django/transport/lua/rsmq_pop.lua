-- Receive a message of an RSMQ queue and delete it.
--
-- KEYS[1]  zset  {namespace}:<queue>     ZSET   score: when visible, ms
-- KEYS[2]  hash  {namespace}:<queue>:Q   HASH   attributes, bodies, counts
--
-- Returns {id, body, receive count, when it was first received}, {} when there is none, or 'NOQUEUE'.

-- with clock
-- with rsmq
-- with numbers
local zset, hash = unpack(KEYS)
if not attributes(hash) then
  return 'NOQUEUE'
end
local now = now_ms()
for _, id in ipairs(redis.call('zrangebyscore', zset, '-inf', now, 'limit', 0, 100)) do
  local body = redis.call('hget', hash, id)
  local before = redis.call('hmget', hash, id .. ':rc', id .. ':fr')
  redis.call('zrem', zset, id)
  redis.call('hdel', hash, id, id .. ':rc', id .. ':fr')
  if body then
    increment(hash, 'totalrecv', 1)
    return { id, body, number_of(before[1]) + 1, before[2] or string.format('%.0f', now) }
  end
end
return {}
