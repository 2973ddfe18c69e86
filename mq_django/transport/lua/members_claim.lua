-- Let a consumer of ours hold what an unknown consumer holds, uncounted.
--
-- KEYS     the streams that deliveries are read from
-- ARGV[1]  group
-- ARGV[2]  holder     any bytes: names of consumers need not be text
-- ARGV[3]  new owner
-- ARGV[4]  limit      deliveries of a stream, at most 500
--
-- Returns how many there were: 0 when the holder has nothing any more.

local found = 0
for _, home in ipairs(KEYS) do
  local pending = redis.pcall('xpending', home, ARGV[1], '-', '+', ARGV[4], ARGV[2])
  local entries = {}
  for i, row in ipairs(pending.err and {} or pending) do
    entries[i] = row[1]
  end
  if #entries > 0 then
    found = found + #entries
    entries[#entries + 1] = 'justid'
    redis.call('xclaim', home, ARGV[1], ARGV[3], 0, unpack(entries))
  end
end
return found
