-- Read a page of dead letters, without their long fields.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  order   'OLDEST' or 'NEWEST' first
-- ARGV[2]  from    an id, '(' and an id, '-' or '+'
-- ARGV[3]  to      the same
-- ARGV[4]  limit   dead letters
-- ARGV[5]  bytes   a longer value is left out
--
-- Returns {dead letters there are, then for each of the page: entry, {field, value or its length, ...}}.

local command = ARGV[1] == 'NEWEST' and 'xrevrange' or 'xrange'
local longest = tonumber(ARGV[5])
local reply = { redis.call('xlen', KEYS[1]) }
for _, found in ipairs(redis.call(command, KEYS[1], ARGV[2], ARGV[3], 'count', ARGV[4])) do
  local fields = found[2]
  for at = 2, #fields, 2 do
    if #fields[at] > longest then
      fields[at] = #fields[at]
    end
  end
  reply[#reply + 1] = found[1]
  reply[#reply + 1] = fields
end
return reply
