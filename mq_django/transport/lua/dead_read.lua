-- Read dead letters by their entries, without long values, traceback and history.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  bytes   a longer value is replaced by its length
-- then entries of `dead`, at most 500
--
-- Returns {number of dead letters, then for each that still exists: entry, {field, value or its length, ...}}.

-- with dead_fields
local reply = { redis.call('xlen', KEYS[1]) }
for i = 2, #ARGV do
  for _, found in ipairs(redis.call('xrange', KEYS[1], ARGV[i], ARGV[i])) do
    reply[#reply + 1] = found[1]
    reply[#reply + 1] = dead_fields(found[2], 'LISTED', tonumber(ARGV[1]))
  end
end
return reply
