-- Read a page of dead letters, without long values.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  order   'OLDEST' or 'NEWEST' first
-- ARGV[2]  from    an id, '(' and an id, '-' or '+'
-- ARGV[3]  to      the same
-- ARGV[4]  limit   dead letters
-- ARGV[5]  bytes   a longer value is replaced by its length
-- ARGV[6]  which   'WHOLE', 'LISTED' or 'TRAITS': see parts/dead_fields
--
-- Returns {number of dead letters, then for each of the page: entry, {field, value or its length, ...}}.

-- with dead_fields
local command = ARGV[1] == 'NEWEST' and 'xrevrange' or 'xrange'
local reply = { redis.call('xlen', KEYS[1]) }
for _, found in ipairs(redis.call(command, KEYS[1], ARGV[2], ARGV[3], 'count', ARGV[4])) do
  reply[#reply + 1] = found[1]
  reply[#reply + 1] = dead_fields(found[2], ARGV[6], tonumber(ARGV[5]))
end
return reply
