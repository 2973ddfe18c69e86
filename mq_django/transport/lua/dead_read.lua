-- Read dead letters by their entries, without long values, traceback and history.
--
-- KEYS[1]  dead    {queue}:dead   STREAM
-- ARGV[1]  bytes   a longer value is replaced by its length
-- then entries of `dead`, at most 500
--
-- Returns {number of dead letters, then for each that still exists: entry, {field, value or its length, ...}}.

local longest = tonumber(ARGV[1])
local reply = { redis.call('xlen', KEYS[1]) }
for i = 2, #ARGV do
  for _, found in ipairs(redis.call('xrange', KEYS[1], ARGV[i], ARGV[i])) do
    local fields = {}
    for at = 1, #found[2], 2 do
      local name, value = found[2][at], found[2][at + 1]
      if name ~= 'deadtraceback' and name ~= 'deadstory' then
        fields[#fields + 1] = name
        fields[#fields + 1] = #value > longest and #value or value
      end
    end
    reply[#reply + 1] = found[1]
    reply[#reply + 1] = fields
  end
end
return reply
