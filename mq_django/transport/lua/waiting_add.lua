-- Publish delayed messages.
--
-- KEYS[1]  due       {queue}:due                ZSET    score: due time, ms
-- KEYS[2]  waiting   {queue}:waiting            HASH    member -> body
-- KEYS[3]  unique    {queue}:unique             HASH    unique member -> id, and id -> member
-- KEYS[4]  replaced  {queue}:replaced           ZSET    ids of replaced messages; score: when, ms
-- KEYS[5]  ready     {queue}:ready              STREAM
-- KEYS[6]  front     {queue}:front              STREAM
-- KEYS[7]  minutes   {queue}:counters:m:<hour>  HASH    counters
-- KEYS[8]  hours     {queue}:counters:h:<day>   HASH    counters
-- ARGV[1]  limit     messages the queue may hold; 0: no limit
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- ARGV[4]  channel   gets the new first due time
-- ARGV[5]  conflict  if the member exists: replace, keep, earliest, error
-- ARGV[6]  postpone  for how many ms after this due time later publishes may postpone the member; '': for any time
-- then for each message: id, member, '+' (ms from now) or '=' (ms since 1970), ms, name, body
-- and one more, if the ids of replaced messages are wanted
--
-- Returns the id that waits now for each message, and if wanted a list of the replaced ones; or 'FULL' or 'EXISTS':
-- nothing is written.

-- with types
-- with clock
-- with count
-- with numbers
-- with bodies
-- with waiting_members
-- with due_times

-- Add a delayed message and return its id, or the id of the message that keeps its place under the same unique key. The
-- id of a replaced message is remembered for a day, and returned as well.
local function put_waiting(due, waiting, unique, replaced, conflict, postpone, now, id, member, score, body)
  if member == id then
    redis.call('zadd', due, score, put_body(waiting, id, body))
    return id
  end
  local old = redis.call('zscore', due, member)
  local known = old and redis.call('hmget', unique, member, latest_field(member)) or {}
  local old_id = known[1] or id
  if old and (conflict == 'keep' or (conflict == 'earliest' and tonumber(old) <= tonumber(score))) then
    return old_id
  end
  -- A limit that another program left behind is that of a message that is gone.
  local latest, whose = string.match(known[2] or '', '^(%d+):(.*)$')
  latest = whose == old_id and number_of(latest) or nil
  if postpone ~= '' then
    latest = math.min(latest or math.huge, score + postpone)
  end
  if latest then
    score = string.format('%.3f', math.min(score, latest))
    redis.call('hset', unique, latest_field(member), string.format('%.0f:%s', math.ceil(latest), id))
  end
  redis.call('hset', waiting, member, body)
  redis.call('zadd', due, score, member)
  if old_id ~= id then
    redis.call('hdel', unique, old_id)
    note_replaced(replaced, old_id, math.floor(now))
  end
  redis.call('hset', unique, member, id, id, member)
  return id, old_id ~= id and old_id or nil
end

local due, waiting, unique, replaced, ready, front, minutes, hours = unpack(KEYS)
local limit, conflict, postpone, wants_replaced = tonumber(ARGV[1]), ARGV[5], ARGV[6], #ARGV % 6 == 1
local last = #ARGV - (wants_replaced and 1 or 0)

check_types({ [waiting] = 'hash', [unique] = 'hash', [replaced] = 'zset' })
local before, now, new = first_due(due), now_us() / 1000, 0
for at = 7, (limit > 0 or conflict == 'error') and last or 0, 6 do
  local exists = ARGV[at + 1] ~= ARGV[at] and redis.call('zscore', due, ARGV[at + 1])
  if exists and conflict == 'error' then
    return 'EXISTS'
  end
  new = new + (exists and 0 or 1)
end
local depth = limit > 0 and redis.call('xlen', ready) + redis.call('xlen', front) + redis.call('hlen', waiting)
if depth and new > 0 and depth + new > limit then
  return 'FULL'
end

local ids, counts, gone = {}, {}, {}
for at = 7, last, 6 do
  local id, name, score = ARGV[at], ARGV[at + 4], due_at(ARGV[at + 2], ARGV[at + 3], now)
  local member, body = ARGV[at + 1], ARGV[at + 5]
  local waiting_id, old = put_waiting(due, waiting, unique, replaced, conflict, postpone, now, id, member, score, body)
  gone[#gone + 1] = old
  if waiting_id == id then
    counts[name] = (counts[name] or 0) + 1
  end
  ids[#ids + 1] = waiting_id
end
count(minutes, ARGV[2], hours, ARGV[3], 'published', counts)
wake_if_earlier(due, before, ARGV[4])
ids[#ids + 1] = wants_replaced and gone or nil
return ids
