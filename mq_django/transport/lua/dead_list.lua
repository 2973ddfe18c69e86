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
-- Returns {number of dead letters, 1 if the page ends before its limit because it has many bytes, then for each of the page:
-- entry, {field, value or its length, ...}}.

-- with dead_fields
-- Dead letters that are read at a time, and bytes after which no more are: to read 100 MB blocks Redis for a second.
local AT_ONCE, MOST_BYTES = 5, 4 * 1024 * 1024

local command = ARGV[1] == 'NEWEST' and 'xrevrange' or 'xrange'
local from, left, size = ARGV[2], tonumber(ARGV[4]), 0
local reply = { redis.call('xlen', KEYS[1]), 0 }
while left > 0 and size < MOST_BYTES do
  local count = math.min(left, AT_ONCE)
  local entries = redis.pcall(command, KEYS[1], from, ARGV[3], 'count', count)
  if entries.err and size == 0 then
    return entries
  end
  -- Nothing follows the largest id, and that is an error.
  entries = entries.err and {} or entries
  for _, found in ipairs(entries) do
    for _, text in ipairs(found[2]) do
      size = size + #text
    end
    reply[#reply + 1] = found[1]
    reply[#reply + 1] = dead_fields(found[2], ARGV[6], tonumber(ARGV[5]))
  end
  left = #entries < count and 0 or left - count
  from = #entries > 0 and '(' .. entries[#entries][1] or from
end
reply[2] = left > 0 and 1 or 0
return reply
