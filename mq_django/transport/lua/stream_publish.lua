-- Put messages into a queue, now.
--
-- KEYS[1]  ready     {queue}:ready               STREAM
-- KEYS[2]  urgent    {queue}:urgent              STREAM
-- KEYS[3]  waiting   {queue}:waiting             HASH
-- KEYS[4]  minutes   {queue}:counters:m:<hour>   HASH    counters
-- KEYS[5]  hours     {queue}:counters:h:<day>    HASH    counters
-- ARGV[1]  limit     messages the queue may hold, or 0
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- ARGV[4]  n         messages
-- then for each message: its name, the number of its fields and values, and these
--
-- Returns the entries' ids, or 'FULL', and then nothing was written.

-- with types
-- with counts
local ready, urgent, waiting, minutes, hours = unpack(KEYS)
local limit, n = tonumber(ARGV[1]), tonumber(ARGV[4])

local wrong = wrong_type({ [minutes] = 'hash', [hours] = 'hash' })
if wrong then
  return wrong
end
if limit > 0 and redis.call('xlen', ready) + redis.call('xlen', urgent) + redis.call('hlen', waiting) + n > limit then
  return 'FULL'
end

local ids, counts, at = {}, {}, 5
for i = 1, n do
  local name, fields = ARGV[at], tonumber(ARGV[at + 1])
  ids[i] = redis.call('xadd', ready, '*', unpack(ARGV, at + 2, at + 1 + fields))
  counts[name] = (counts[name] or 0) + 1
  at = at + 2 + fields
end
count_published(minutes, ARGV[2], hours, ARGV[3], counts)
return ids
