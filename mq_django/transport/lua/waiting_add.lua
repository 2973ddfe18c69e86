-- Put messages into the waiting room, to be ready when due.
--
-- KEYS[1]  due       {queue}:due                 ZSET    score: due time, ms
-- KEYS[2]  waiting   {queue}:waiting             HASH    member -> body
-- KEYS[3]  unique    {queue}:unique              HASH    unique member -> id, and id -> member
-- KEYS[4]  replaced  {queue}:replaced            ZSET    ids that others took the place of; score: when, ms
-- KEYS[5]  ready     {queue}:ready               STREAM
-- KEYS[6]  urgent    {queue}:urgent              STREAM
-- KEYS[7]  minutes   {queue}:counters:m:<hour>   HASH    counters
-- KEYS[8]  hours     {queue}:counters:h:<day>    HASH    counters
-- ARGV[1]  limit     messages the queue may hold, or 0
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- ARGV[4]  channel   told the new first due time
-- ARGV[5]  conflict  of a member that is there: replace, keep, earliest, error
-- then for each message: id, member, '+' (ms from now) or '=' (ms since 1970), ms, name, body
--
-- Returns the ids that wait now, in order; or 'FULL', or 'EXISTS', and then nothing was written.

-- with types
-- with clock
-- with counts
local due, waiting, unique, replaced, ready, urgent, minutes, hours = unpack(KEYS)
local limit, conflict = tonumber(ARGV[1]), ARGV[5]

local wrong = wrong_type({ [waiting] = 'hash', [unique] = 'hash', [replaced] = 'zset' })
  or wrong_type({ [minutes] = 'hash', [hours] = 'hash' })
if wrong then
  return wrong
end
local first = redis.call('zrange', due, 0, 0, 'withscores')[2]
if limit > 0 or conflict == 'error' then
  local new = 0
  for at = 6, #ARGV, 6 do
    local there = redis.call('zscore', due, ARGV[at + 1])
    if there and conflict == 'error' then
      return 'EXISTS'
    end
    new = new + (there and 0 or 1)
  end
  local depth = redis.call('xlen', ready) + redis.call('xlen', urgent) + redis.call('hlen', waiting)
  if limit > 0 and new > 0 and depth + new > limit then
    return 'FULL'
  end
end

local now, ids, counts = now_ms(), {}, {}
for at = 6, #ARGV, 6 do
  local id, member, name = ARGV[at], ARGV[at + 1], ARGV[at + 4]
  local score = due_at(ARGV[at + 2], ARGV[at + 3], now)
  local is_unique = member ~= id
  local old = (is_unique or conflict ~= 'replace') and redis.call('zscore', due, member)
  local old_id = old and is_unique and redis.call('hget', unique, member) or id
  if old and (conflict == 'keep' or (conflict == 'earliest' and tonumber(old) <= tonumber(score))) then
    id = old_id
  else
    redis.call('hset', waiting, member, ARGV[at + 5])
    redis.call('zadd', due, score, member)
    if old_id ~= id then
      redis.call('hdel', unique, old_id)
      redis.call('zadd', replaced, now, old_id)
      -- Ten thousand, so that a signal that fires a thousand times a second cannot fill the memory in its day.
      redis.call('zremrangebyrank', replaced, 0, -10001)
      redis.call('expire', replaced, 86400)
    end
    if is_unique then
      redis.call('hset', unique, member, id, id, member)
    end
    counts[name] = (counts[name] or 0) + 1
  end
  ids[#ids + 1] = id
end
count_published(minutes, ARGV[2], hours, ARGV[3], counts)
local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
if head and head ~= first then
  redis.call('publish', ARGV[4], 'due ' .. head)
end
return ids
