-- Count the entries of a log that come after one.
--
-- KEYS[1]  log     {topic}:log   STREAM
-- ARGV[1]  after   entry
-- ARGV[2]  limit   entries to count; it may be fewer, when they are large
-- ARGV[3]  until   the last entry that counts, or '+'
--
-- Returns {how many, the last of them, 1 if there may be more}.

local count, last, bytes = 0, ARGV[1], 0
local limit = tonumber(ARGV[2])
-- Redis has no way to count without reading; what is read at once is bounded.
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
