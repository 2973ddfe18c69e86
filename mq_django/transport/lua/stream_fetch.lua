-- Take messages for a consumer without waiting: `front` first, then by priority.
--
-- KEYS[1]  ready     {queue}:ready     STREAM
-- KEYS[2]  front     {queue}:front     STREAM
-- KEYS[3]  control   {queue}:control   HASH
-- KEYS[4]  priority  {queue}:priority  ZSET    score: see parts/ranks
-- KEYS[5]  waiting   {queue}:waiting   HASH    member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  count      messages, at most 1000; 0: only wake the next blocked reader, if prioritised messages are left
--
-- Returns {entries of ready, entries of front, 1 if priorities were ever used, or the ms that a step of one is worth, how
-- many entries of front precede the first of ready; and with ageing how many of ready precede each of front}, each entry
-- {id, {field, value, ...}}; 'PAUSED'; or 'ORDERED' when the queue is used with ORDERED: see lines_begin.

-- with take_by_priority
local ready, front, control, priority, waiting = unpack(KEYS)
local group, consumer, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local state = redis.call('hmget', control, 'paused', 'ranked', 'ordered', 'ageing')
if state[3] == '1' then
  return 'ORDERED'
end
if state[1] == '1' then
  return 'PAUSED'
end

local taking = taking_from({ ready, front }, group, consumer)
count = read(taking, 2, count)
if not state[2] then
  read(taking, 1, count)
  return all_taken(taking, 0)
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', control, '')
local ageing = ageing_of(state[4])
if count > 0 then
  local keys = { ready = ready, front = front, control = control, priority = priority, waiting = waiting, ageing = ageing }
  take_by_rank(taking, keys, count)
elseif ARGV[3] == '0' and #undelivered(ready, group, 1) == 0 then
  local id, score = unpack(redis.call('zrange', priority, 0, 0, 'withscores'))
  if id then
    make_all_ready(priority, { id }, waiting, nil, function(own, body)
      return add_entry(ready, own, body)
    end)
    local entry = ageing and is_aged(score) and undelivered(ready, group, 1)[1]
    if entry then
      redis.call('hset', control, 'woken', entry[1] .. ' ' .. score)
    end
  end
end
return all_taken(taking, math.max(1, ageing or 0))
