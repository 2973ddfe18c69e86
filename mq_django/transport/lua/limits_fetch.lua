-- Take messages for a consumer within the queue's limits. Parked messages whose key has a free permit come first.
--
-- KEYS and ARGV[1..8]: see parts/limits
-- ARGV[9]   count   messages, at most 1000
-- ARGV[10]  turn    when the last reply told the consumer to ask again, microseconds since 1970, or 0
--
-- Returns 'PAUSED'; {'FULL'} when the concurrency limit is reached; {'LATER', us from now, turn} when the rate limit is
-- reached; or {'TAKEN', entries of ready, entries of urgent, how many of these precede those of ready, entries that
-- have a permit of their key, ms until the next check of a key with parked messages or -1, 1 if priorities were ever
-- used}.

-- with limits
-- with permits
-- with release_parked
-- with capacity
-- with take_by_priority
local state = redis.call('hmget', control, 'paused', 'ranked')
if state[1] == '1' then
  return 'PAUSED'
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', limits, '')

local count, words, concurrent = capacity(tonumber(ARGV[9]), number_of(ARGV[10]))
if not count then
  return words
end

local taking = taking_from({ ready, urgent }, group, consumer)
local left, has_permit = read(taking, 2, count), {}
if key_rate + key_most > 0 then
  keep_taken(taking, function()
    for _, key in ipairs(redis.call('zrangebyscore', next_checks, '-inf', ms, 'limit', 0, left)) do
      has_permit[#has_permit + 1] = release_parked(key, 1)
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
  keep_taken(taking, forget_past, 200)
end
local found = count_taken(taking)
if words and found > 0 then
  redis.call('hset', limits, 'r', granted(words, found, rate, width, now))
end
if concurrent and left > 0 then
  redis.call('hdel', limits, 'w')
elseif concurrent and concurrent > found and redis.call('hget', limits, 'w') then
  -- More messages and a free permit are left: wake the next waiting consumer.
  redis.pcall('xadd', permit_wakeups, 'maxlen', '~', 16, '*', 'n', 1)
end
if taking.failed and found == 0 then
  return taking.failed
end
local next_check = keep_taken(taking, redis.call, 'zrange', next_checks, 0, 0, 'withscores')
local next_ms = next_check and next_check[2] and math.min(9e15, math.max(1, next_check[2] - ms)) or -1
local taken, ranked = taking.taken, state[2] and 1 or 0
return { 'TAKEN', taken[1], taken[2], taking.lead or #taken[2], has_permit, next_ms, ranked }
