-- Change attributes of an RSMQ queue, if any are given, and read all.
--
-- KEYS[1]  zset  {namespace}:<queue>     ZSET   score: when visible, ms
-- KEYS[2]  hash  {namespace}:<queue>:Q   HASH
-- then ARGV: names and values to set
--
-- Returns {vt, delay, maxsize, totalrecv, totalsent, created, modified, messages, hidden messages}, or 'NOQUEUE'.

-- with clock
-- with lists
-- with rsmq
local zset, hash = unpack(KEYS)
if not attributes(hash) then
  return 'NOQUEUE'
end
if #ARGV > 0 then
  redis.call('hset', hash, 'modified', math.floor(now_ms() / 1000), unpack(ARGV))
end
local vt, delay, maxsize = attributes(hash)
local rest = redis.call('hmget', hash, 'totalrecv', 'totalsent', 'created', 'modified')
local reply = { vt, delay, maxsize }
for i = 1, 4 do
  reply[#reply + 1] = math.floor(number_of(rest[i]))
end
add_all(reply, redis.call('zcard', zset), redis.call('zcount', zset, string.format('(%.0f', now_ms()), '+inf'))
return reply
