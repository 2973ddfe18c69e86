-- Take messages for a consumer, no more than the queue's limits allow; first those whose key has a permit again.
--
-- KEYS and ARGV[1..8]: see parts/limits
-- ARGV[9]   count   messages, at most 1000
-- ARGV[10]  turn    the moment it was told to come again, microseconds since 1970, or 0
--
-- Returns 'PAUSED'; {'FULL'} when as many are handled as may be; {'LATER', us from now, turn} when as many were; or
-- {'TAKEN', entries of ready, entries of urgent, how many of these go before ready's, those that have a permit of their
-- key, ms until the next turn of a parked one or -1, 1 if priorities were ever used}.

-- with limits
-- with permits
-- with parked
-- with room
-- with best
local state = redis.call('hmget', control, 'paused', 'ranked')
if state[1] == '1' then
  return 'PAUSED'
end
-- A write that is allowed when memory is out: after it the others are, and a full Redis can be emptied.
redis.call('hdel', limits, '')

local count, words, at_once = room(tonumber(ARGV[9]), number_of(ARGV[10]))
if not count then
  return words
end

local taking = taking_from({ ready, urgent }, group, consumer)
local left, has_permit = read(taking, 2, count), {}
if key_rate + key_most > 0 then
  careful(taking, function()
    for _, key in ipairs(redis.call('zrangebyscore', turns, '-inf', ms, 'limit', 0, left)) do
      has_permit[#has_permit + 1] = release(key, 1)
    end
  end)
  left = read(taking, 2, left)
end
if state[2] and left > 0 then
  local keys = { ready = ready, urgent = urgent, control = control, priority = priority, waiting = waiting }
  left = take_by_rank(taking, keys, left)
elseif not state[2] then
  left = read(taking, 1, left)
end
if key_rate > 0 then
  careful(taking, forget_past, 200)
end
local found = count_taken(taking)
if words and found > 0 then
  redis.call('hset', limits, 'r', granted(words, found, rate, width, now))
end
if at_once and left > 0 then
  redis.call('hdel', limits, 'w')
elseif at_once and at_once > found and redis.call('hget', limits, 'w') then
  -- There is more, and a permit for it: for the next that waits.
  redis.pcall('xadd', freed, 'maxlen', '~', 16, '*', 'n', 1)
end
if taking.failed and found == 0 then
  return taking.failed
end
local turn = careful(taking, redis.call, 'zrange', turns, 0, 0, 'withscores')
local next_ms = turn and turn[2] and math.min(9e15, math.max(1, turn[2] - ms)) or -1
local taken, ranked = taking.taken, state[2] and 1 or 0
return { 'TAKEN', taken[1], taken[2], taking.lead or #taken[2], has_permit, next_ms, ranked }
