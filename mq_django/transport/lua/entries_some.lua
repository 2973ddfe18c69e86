-- Read some entries, without long fields.
--
-- KEYS     homes   the streams that deliveries are read from
-- ARGV[1]  bytes   a longer value is left out
-- then pairs of the place of a home among the keys and an entry, at most 500
--
-- Returns for each {field, value or its length, ...}, which is empty when it is not there.

-- with cut
local reply = {}
for at = 2, #ARGV, 2 do
  local entry = ARGV[at + 1]
  local found = redis.call('xrange', KEYS[tonumber(ARGV[at])], entry, entry)[1]
  reply[#reply + 1] = found and cut(found[2], tonumber(ARGV[1])) or {}
end
return reply
