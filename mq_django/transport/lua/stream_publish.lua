-- Put messages into a queue, now.
--
-- KEYS[1]  ready     {queue}:ready               STREAM
-- KEYS[2]  due       {queue}:due                 ZSET
-- KEYS[3]  minutes   {queue}:counters:m:<hour>   HASH    counters
-- KEYS[4]  hours     {queue}:counters:h:<day>    HASH    counters
-- ARGV[1]  limit     messages the queue may hold, or 0
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- ARGV[4]  n         messages
-- then for each message: its name, the number of its fields and values, and these
--
-- Returns the entries' ids, or 'FULL', and then nothing was written.

local ready, due, minutes, hours = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit, n = tonumber(ARGV[1]), tonumber(ARGV[4])

for key, kind in pairs({ [minutes] = 'hash', [hours] = 'hash' }) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end
if limit > 0 and redis.call('xlen', ready) + redis.call('zcard', due) + n > limit then
  return 'FULL'
end

-- Counted by name, and under no name in all: pages of many queues read nothing else.
local ids, counts, at = {}, { [''] = n }, 5
for i = 1, n do
  local name, fields = ARGV[at], tonumber(ARGV[at + 1])
  ids[i] = redis.call('xadd', ready, '*', unpack(ARGV, at + 2, at + 1 + fields))
  counts[name] = (counts[name] or 0) + 1
  at = at + 2 + fields
end
for name, count in pairs(counts) do
  -- The first count of a slot is when its hash may be new: it then gets its time to live, a day and 35 days.
  if redis.call('hincrby', minutes, ARGV[2] .. '|published|' .. name, count) == count then
    redis.call('expire', minutes, 93600)
  end
  if redis.call('hincrby', hours, ARGV[3] .. '|published|' .. name, count) == count then
    redis.call('expire', hours, 3024000)
  end
end
return ids
