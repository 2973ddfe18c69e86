-- Put dead letters back into their RSMQ queue, as new as when they were sent.
--
-- KEYS[1]  dead      {namespace}:<queue>:mq:dead       STREAM
-- KEYS[2]  dead ids  {namespace}:<queue>:mq:dead-ids   HASH    message id -> entry of `dead`
-- KEYS[3]  zset      {namespace}:<queue>               ZSET    score: when visible, ms
-- KEYS[4]  hash      {namespace}:<queue>:Q             HASH    attributes, bodies, counts
-- ARGV[1]  channel   told that something is visible earlier than was known
-- then entries of `dead`, at most 500
--
-- Returns for each: 'REDRIVEN', 'MISSING' when it is no longer there, or 'UNDECODABLE' when it is no message.

-- with types
-- with clock
local dead, ids, zset, hash = unpack(KEYS)
local wrong = wrong_type({ [dead] = 'stream', [ids] = 'hash', [zset] = 'zset', [hash] = 'hash' })
if wrong then
  return wrong
end

local now, reply = now_ms(), {}
for i = 2, #ARGV do
  local found = redis.call('xrange', dead, ARGV[i], ARGV[i])[1]
  local values = {}
  for at = 1, found and #found[2] or 0, 2 do
    values[found[2][at]] = found[2][at + 1]
  end
  if values.deadraw then
    reply[#reply + 1] = 'UNDECODABLE'
  elseif values.id and values.deadbody then
    redis.call('zadd', zset, string.format('%.0f', now), values.id)
    redis.call('hset', hash, values.id, values.deadbody)
    redis.call('xdel', dead, ARGV[i])
    if redis.call('hget', ids, values.id) == ARGV[i] then
      redis.call('hdel', ids, values.id)
    end
    reply[#reply + 1] = 'REDRIVEN'
  else
    reply[#reply + 1] = 'MISSING'
  end
end
redis.call('publish', ARGV[1], string.format('due %.0f', now))
return reply
