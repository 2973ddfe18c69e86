-- Read a page of dead letters, without long values.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  order   'OLDEST' or 'NEWEST' first
-- ARGV[2]  from    an id, '(' and an id, '-' or '+'
-- ARGV[3]  to      the same
-- ARGV[4]  limit   dead letters
-- ARGV[5]  bytes   a longer value is replaced by its length
-- ARGV[6]  which   'WHOLE', 'LISTED' or 'TRAITS': see parts/pages
--
-- Returns {number of dead letters, 1 if the page ends before its limit because it has many bytes, then for each of the page:
-- entry, {field, value or its length, ...}}.

-- with pages
local reply, command = { redis.call('xlen', KEYS[1]), 0 }, ARGV[1] == 'NEWEST' and 'xrevrange' or 'xrange'
reply[2] = each_in_range(command, KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), function(entry, fields)
  reply[#reply + 1] = entry
  reply[#reply + 1] = dead_fields(fields, ARGV[6], tonumber(ARGV[5]))
end)
return reply
