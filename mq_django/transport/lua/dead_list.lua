-- Read a page of dead letters, or some by their entries, without long values.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  order   'OLDEST' or 'NEWEST' first; 'EACH': of the entries at the end, at most 500, those that still exist
-- ARGV[2]  from    an id, '(' and an id, '-' or '+'
-- ARGV[3]  to      the same
-- ARGV[4]  limit   dead letters
-- ARGV[5]  bytes   a longer value is replaced by its length
-- ARGV[6]  which   'WHOLE', 'LISTED' or 'TRAITS': see parts/pages
-- then entries
--
-- Returns {number of dead letters, 1 if the page ends before its limit because it has many bytes, then for each of the page:
-- entry, {field, value or its length, ...}}.

-- with lists
-- with pages
local reply, command = { redis.call('xlen', KEYS[1]), 0 }, ARGV[1] == 'NEWEST' and 'xrevrange' or 'xrange'
local function add(entry, fields)
  add_all(reply, entry, dead_fields(fields, ARGV[6], tonumber(ARGV[5])))
end
if ARGV[1] ~= 'EACH' then
  reply[2] = each_in_range(command, KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), add)
end
for i = 7, #ARGV do
  local found = redis.call('xrange', KEYS[1], ARGV[i], ARGV[i])[1]
  if found then
    add(unpack(found))
  end
end
return reply
