-- Add to the counters of this minute and this hour.
--
-- KEYS[1]  minutes   {queue}:counters:m:<hour>   HASH
-- KEYS[2]  hours     {queue}:counters:h:<day>    HASH
-- ARGV[1]  minute    slot in `minutes`
-- ARGV[2]  hour      slot in `hours`
-- then for each counter: `|<what>|<name>`, how many
--
-- Returns 'ADDED'.

-- with names
for at = 3, #ARGV, 2 do
  local what, name = string.match(ARGV[at], '^(|[^|]*|)(.*)$')
  for i = 1, 2 do
    if name == '' then
      redis.pcall('hincrby', KEYS[i], ARGV[i] .. what, ARGV[at + 1])
    else
      count_name(KEYS[i], ARGV[i] .. what, name, ARGV[at + 1])
    end
  end
end
-- A day and two hours, and 35 days: what the charts show, and a little more.
redis.call('expire', KEYS[1], 93600)
redis.call('expire', KEYS[2], 3024000)
return 'ADDED'
