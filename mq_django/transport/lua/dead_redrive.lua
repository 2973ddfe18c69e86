-- Put dead letters back into their queue, as new as when they were published.
--
-- KEYS[1]  dead       {queue}:dead       STREAM
-- KEYS[2]  dead ids   {queue}:dead-ids   HASH     message id -> entry of `dead`
-- KEYS[3]  ready      {queue}:ready      STREAM
-- then ARGV: entries of `dead`, at most 500
--
-- Returns for each: 'REDRIVEN', 'MISSING' when it is no longer there, or 'UNDECODABLE' when it is no message.

for key, kind in pairs({ [KEYS[1]] = 'stream', [KEYS[2]] = 'hash', [KEYS[3]] = 'stream' }) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end

-- What burying added (a header may well be called `deadline`, so the names are spelled out), and what ends with the
-- decision to have it handled after all: the count of attempts, and the time after which it would vanish unhandled.
local dropped = { deadreason = 1, deaderror = 1, deadtraceback = 1, deadattempts = 1, deadfirst = 1, attempt = 1, expires = 1 }

local function redrive(entry)
  local found = redis.call('xrange', KEYS[1], entry, entry)[1]
  if not found then
    return 'MISSING'
  end
  local fields, values = {}, {}
  for at = 1, #found[2], 2 do
    values[found[2][at]] = found[2][at + 1]
  end
  -- Lua unpacks no more than about 8000 values, and an error half-way would leave the batch half done.
  if values.deadraw or not values.type or #found[2] > 4000 then
    return 'UNDECODABLE'
  end
  for at = 1, #found[2], 2 do
    local name = found[2][at]
    if not dropped[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = found[2][at + 1]
    end
  end
  redis.call('xadd', KEYS[3], '*', unpack(fields))
  redis.call('xdel', KEYS[1], entry)
  -- A message buried again meanwhile under the same id has an entry of its own.
  if values.id and redis.call('hget', KEYS[2], values.id) == entry then
    redis.call('hdel', KEYS[2], values.id)
  end
  return 'REDRIVEN'
end

local reply = {}
for i = 1, #ARGV do
  reply[i] = redrive(ARGV[i])
end
return reply
