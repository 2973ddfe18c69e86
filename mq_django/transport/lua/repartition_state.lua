-- Go on to the next state of a change of a queue's number of partitions, if it is in the expected one.
--
-- KEYS[1]  control   {queue}:control   HASH    `partitions` and `repartition:*`
-- ARGV[1]  expected  the number of fields that are expected
-- then for each of these: the field and its value; '' if it is missing
-- then fields and their new values; '' removes a field
--
-- Returns {'CHANGED'}; or {'OTHER', then each expected field and the value that it has}, and nothing is written.

-- with lists
-- with types
local control, expected = KEYS[1], tonumber(ARGV[1])
check_types({ [control] = 'hash' })

local reply, is_other = { 'OTHER' }, false
for at = 2, 2 * expected, 2 do
  local found = redis.call('hget', control, ARGV[at]) or ''
  add_all(reply, ARGV[at], found)
  is_other = is_other or found ~= ARGV[at + 1]
end
if is_other then
  return reply
end
for at = 2 * expected + 2, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    redis.call('hdel', control, ARGV[at])
  else
    redis.call('hset', control, ARGV[at], ARGV[at + 1])
  end
end
return { 'CHANGED' }
