-- Add to the counters of this minute and this hour.
--
-- KEYS[1]  minutes   {queue}:counters:m:<hour>   HASH
-- KEYS[2]  hours     {queue}:counters:h:<day>    HASH
-- ARGV[1]  minute    slot in `minutes`
-- ARGV[2]  hour      slot in `hours`
-- then for each counter: `|<kind>|<name>`, and the number to add
--
-- Returns 'ADDED'.

-- with count
for at = 3, #ARGV, 2 do
  local count = tonumber(ARGV[at + 1])
  for i = 1, 2 do
    if redis.pcall('hincrby', KEYS[i], ARGV[i] .. ARGV[at], ARGV[at + 1]) == count then
      local kind, name = string.match(ARGV[at], '^(|[^|]*|)(.+)$')
      if name then
        bound_names(KEYS[i], ARGV[i] .. kind, name, count)
      end
    end
  end
end
-- 26 hours and 35 days: slightly more than the charts show.
redis.call('expire', KEYS[1], 93600)
redis.call('expire', KEYS[2], 3024000)
return 'ADDED'
