-- Delete dead letters for good.
--
-- KEYS[1]  dead       {queue}:dead       STREAM
-- KEYS[2]  dead ids   {queue}:dead-ids   HASH     message id -> entry of `dead`
-- then ARGV: entries of `dead`, at most 500
--
-- Returns for each: 'DELETED', or 'MISSING' when it is no longer there.

for key, kind in pairs({ [KEYS[1]] = 'stream', [KEYS[2]] = 'hash' }) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end

local reply = {}
for i = 1, #ARGV do
  local found = redis.call('xrange', KEYS[1], ARGV[i], ARGV[i])[1]
  reply[i] = found and 'DELETED' or 'MISSING'
  if found then
    redis.call('xdel', KEYS[1], ARGV[i])
    for at = 1, #found[2], 2 do
      local id = found[2][at] == 'id' and found[2][at + 1]
      if id and redis.call('hget', KEYS[2], id) == ARGV[i] then
        redis.call('hdel', KEYS[2], id)
      end
    end
  end
end
return reply
