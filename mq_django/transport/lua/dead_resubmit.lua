-- Put a dead letter back into its queue with other data, as a new message.
--
-- KEYS[1]  dead       {queue}:dead       STREAM
-- KEYS[2]  dead ids   {queue}:dead-ids   HASH     message id -> entry of `dead`
-- KEYS[3]  ready      {queue}:ready      STREAM
-- ARGV[1]  entry      of `dead`
-- ARGV[2]  id         of the new message
-- ARGV[3]  data       JSON text
--
-- Returns 'RESUBMITTED', 'MISSING' when it is no longer there, or 'UNDECODABLE' when it is no message.

-- with types
local wrong = wrong_type({ [KEYS[1]] = 'stream', [KEYS[2]] = 'hash', [KEYS[3]] = 'stream' })
if wrong then
  return wrong
end

local found = redis.call('xrange', KEYS[1], ARGV[1], ARGV[1])[1]
if not found then
  return 'MISSING'
end
-- What burying added, what ends with the decision to have it handled after all, and what belonged to the old id.
local dropped = {
  deadreason = 1, deaderror = 1, deadtraceback = 1, deadattempts = 1, deadfirst = 1,
  attempt = 1, expires = 1, id = 1, time = 1, claim = 1, data = 1, message = 1,
}
local fields, values = { 'id', ARGV[2] }, {}
for at = 1, #found[2], 2 do
  local name, value = found[2][at], found[2][at + 1]
  values[name] = value
  if not dropped[name] then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
-- Lua unpacks no more than about 8000 values.
if values.deadraw or not values.type or #found[2] > 4000 then
  return 'UNDECODABLE'
end
fields[#fields + 1] = 'data'
fields[#fields + 1] = ARGV[3]
redis.call('xadd', KEYS[3], '*', unpack(fields))
redis.call('xdel', KEYS[1], ARGV[1])
if values.id and redis.call('hget', KEYS[2], values.id) == ARGV[1] then
  redis.call('hdel', KEYS[2], values.id)
end
return 'RESUBMITTED'
