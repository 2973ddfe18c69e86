-- Put messages into the waiting room, to be ready when due.
--
-- KEYS[1]  due       {queue}:due                 ZSET    score: due time, ms
-- KEYS[2]  waiting   {queue}:waiting             HASH    member -> body
-- KEYS[3]  unique    {queue}:unique              HASH    unique member -> id
-- KEYS[4]  ready     {queue}:ready               STREAM
-- KEYS[5]  minutes   {queue}:counters:m:<hour>   HASH    counters
-- KEYS[6]  hours     {queue}:counters:h:<day>    HASH    counters
-- ARGV[1]  limit     messages the queue may hold, or 0
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- ARGV[4]  channel   told the new first due time
-- ARGV[5]  conflict  of a unique member that is there: replace, keep, earliest, error
-- then for each message: id, member, '+' (ms from now) or '=' (ms since 1970), ms, name, body
--
-- Returns the ids that wait now, in order; or 'FULL', or 'EXISTS', and then nothing was written.

local due, waiting, unique, ready, minutes, hours = unpack(KEYS)
local limit, conflict = tonumber(ARGV[1]), ARGV[5]

for key, kind in pairs({ [waiting] = 'hash', [unique] = 'hash', [minutes] = 'hash', [hours] = 'hash' }) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end
local first = redis.call('zrange', due, 0, 0, 'withscores')[2]
local n = (#ARGV - 5) / 6
if limit > 0 and redis.call('xlen', ready) + redis.call('zcard', due) + n > limit then
  return 'FULL'
end
if conflict == 'error' then
  for at = 6, #ARGV, 6 do
    if redis.call('zscore', due, ARGV[at + 1]) then
      return 'EXISTS'
    end
  end
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids, counts = {}, {}
for at = 6, #ARGV, 6 do
  local id, member, name = ARGV[at], ARGV[at + 1], ARGV[at + 4]
  local score = tonumber(ARGV[at + 3]) + (ARGV[at + 2] == '+' and now or 0)
  local old = redis.call('zscore', due, member)
  if old and (conflict == 'keep' or (conflict == 'earliest' and tonumber(old) <= score)) then
    id = redis.call('hget', unique, member) or id
  else
    redis.call('hset', waiting, member, ARGV[at + 5])
    redis.call('zadd', due, string.format('%.0f', score), member)
    if string.sub(member, 1, 2) == 'u:' then
      redis.call('hset', unique, member, id)
    end
    counts[name] = (counts[name] or 0) + 1
    counts[''] = (counts[''] or 0) + 1
  end
  ids[#ids + 1] = id
end
for name, count in pairs(counts) do
  if redis.call('hincrby', minutes, ARGV[2] .. '|published|' .. name, count) == count then
    redis.call('expire', minutes, 93600)
  end
  if redis.call('hincrby', hours, ARGV[3] .. '|published|' .. name, count) == count then
    redis.call('expire', hours, 3024000)
  end
end
local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
if head and head ~= first then
  redis.call('publish', ARGV[4], 'due ' .. head)
end
return ids
