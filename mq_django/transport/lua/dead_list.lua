-- Read a page of dead letters, without long values.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  order   'OLDEST' or 'NEWEST' first
-- ARGV[2]  from    an id, '(' and an id, '-' or '+'
-- ARGV[3]  to      the same
-- ARGV[4]  limit   dead letters
-- ARGV[5]  bytes   a longer value is replaced by its length
-- ARGV[6]  which   'WHOLE'; 'LISTED': without traceback and history; or 'TRAITS': only the fields that filters use
--
-- Returns {number of dead letters, then for each of the page: entry, {field, value or its length, ...}}.

local traits = { id = 1, type = 1, partitionkey = 1, time = 1, deaderror = 1 }
local histories = { deadtraceback = 1, deadstory = 1 }

local command = ARGV[1] == 'NEWEST' and 'xrevrange' or 'xrange'
local longest = tonumber(ARGV[5])
local reply = { redis.call('xlen', KEYS[1]) }
for _, found in ipairs(redis.call(command, KEYS[1], ARGV[2], ARGV[3], 'count', ARGV[4])) do
  local fields = {}
  for at = 1, #found[2], 2 do
    local name, value = found[2][at], found[2][at + 1]
    if ARGV[6] == 'WHOLE' or ARGV[6] == 'TRAITS' and traits[name] or ARGV[6] == 'LISTED' and not histories[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = #value > longest and #value or value
    end
  end
  reply[#reply + 1] = found[1]
  reply[#reply + 1] = fields
end
return reply
