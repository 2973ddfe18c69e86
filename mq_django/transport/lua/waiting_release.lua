-- Make the unhandled messages of one name ready.
--
-- KEYS[1]  unhandled  {queue}:unhandled   ZSET    score: the name's hash
-- KEYS[2]  waiting    {queue}:waiting     HASH    member -> body
-- KEYS[3]  ready      {queue}:ready       STREAM
-- ARGV[1]  score      of the name
-- ARGV[2]  limit      messages, at most 500
--
-- Returns how many were moved.

for key, kind in pairs({ [KEYS[2]] = 'hash', [KEYS[3]] = 'stream' }) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end

local members = redis.call('zrangebyscore', KEYS[1], ARGV[1], ARGV[1], 'limit', 0, ARGV[2])
if #members == 0 then
  return 0
end
local bodies = redis.call('hmget', KEYS[2], unpack(members))
redis.call('zrem', KEYS[1], unpack(members))
redis.call('hdel', KEYS[2], unpack(members))
for i = 1, #members do
  if bodies[i] then
    redis.call('xadd', KEYS[3], '*', 'id', members[i], 'message', bodies[i])
  end
end
return #members
