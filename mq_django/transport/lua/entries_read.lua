-- Read entries by their ids, without long values.
--
-- KEYS     streams   the streams from which deliveries are read
-- ARGV[1]  bytes   a longer value is replaced by its length
-- then pairs of an index of KEYS and an entry, at most 500
--
-- Returns for each {field, value or its length, ...}, empty when the entry does not exist.

-- with pages
local reply = {}
for at = 2, #ARGV, 2 do
  local entry = ARGV[at + 1]
  local found = redis.call('xrange', KEYS[tonumber(ARGV[at])], entry, entry)[1]
  reply[#reply + 1] = found and truncate(found[2], tonumber(ARGV[1])) or {}
end
return reply
