-- Count the entries of a log after a given entry.
--
-- KEYS[1]  log     {topic}:log   STREAM
-- ARGV[1]  after   entry
-- ARGV[2]  limit   entries to count; fewer are counted if they are large
-- ARGV[3]  until   the last entry that counts, or '+'
--
-- Returns {count, the last counted entry, 1 if there may be more}.

local count, last, bytes = 0, ARGV[1], 0
local limit = tonumber(ARGV[2])
-- Redis cannot count without reading, so the bytes read in one call are bounded.
while count < limit and bytes < 4194304 do
  local found = redis.call('xrange', KEYS[1], '(' .. last, ARGV[3], 'count', math.min(100, limit - count))
  if #found == 0 then
    return { count, last, 0 }
  end
  for i = 1, #found do
    local fields = found[i][2]
    bytes = bytes + #fields[#fields]
  end
  count = count + #found
  last = found[#found][1]
end
return { count, last, 1 }
