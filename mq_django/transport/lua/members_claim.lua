-- Claim deliveries of an unknown consumer for one of ours. No attempt is counted.
--
-- KEYS     the streams from which deliveries are read
-- ARGV[1]  group
-- ARGV[2]  holder     any bytes: a consumer's name need not be text
-- ARGV[3]  new owner
-- ARGV[4]  limit      deliveries per stream, at most 500
--
-- Returns the number of claimed deliveries: 0 when the holder has none left.

local found = 0
for _, stream in ipairs(KEYS) do
  local pending = redis.pcall('xpending', stream, ARGV[1], '-', '+', ARGV[4], ARGV[2])
  local entries = {}
  for i, row in ipairs(pending.err and {} or pending) do
    entries[i] = row[1]
  end
  if #entries > 0 then
    found = found + #entries
    entries[#entries + 1] = 'justid'
    redis.call('xclaim', stream, ARGV[1], ARGV[3], 0, unpack(entries))
  end
end
return found
