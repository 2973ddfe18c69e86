-- Take messages for a consumer, of each key no more than may run: by limits, in order, or in turn. What may not run yet
-- is put into the line of its key. Nothing else reads the consumer group of such a queue: a message that is read before
-- its key is asked for could overtake others.
--
-- A call reads `front`, then lets the first messages of lines go on whose keys may run again, and then reads `ready`. Each
-- message without a token is decided about: it gets one, or gets into the line of its key. With FAIR all that is ready gets
-- into lines while messages wait, and the turns of the keys decide.
--
-- KEYS[1..6]   ready, front, control, priority, waiting, unique: see parts/line_keys
-- KEYS[7..12]  limits, rates, permits, parked, next-checks, permit-wakeups: see parts/line_keys
-- KEYS[13..15]  due, unhandled, dead
-- KEYS[16] tags     {queue}:tags   ZSET   hashes of the keys whose lines may go on, by their turn; only with FAIR
-- ARGV[1..8]        see parts/line_keys
-- ARGV[9]  count    messages, at most 1000; 0: only put what is ready into lines, with FAIR
-- ARGV[10] turn     when the last reply told the consumer to ask again, microseconds since 1970, or 0
-- ARGV[11] order    '1' if the messages of a key run in their order, one at a time, else '0'
-- ARGV[12] fair     '1' if keys take turns, else '0'
-- then for each key with a weight: its hash, 1000 divided by the weight
--
-- Returns 'PAUSED'; 'OTHER' when the queue is used with another ORDERED: see lines_begin; {'FULL'} when the concurrency
-- limit is reached; {'LATER', us from now, turn} when the rate limit is reached; with a count of 0 {'LINED', 1 if there may
-- be more, else 0}; or {'TAKEN', entries of ready, entries of front, how many of these precede the first of ready, ms until
-- the next look at a line or -1, 1 if priorities were ever used, 1 if there may be more to take at once}.

-- with line_keys
-- with windows
-- with numbers
-- with take_by_priority
-- with undelivered
-- with line_permits
-- with lines
-- with line_turns

-- Return how many of `count` deliveries the queue's own limits allow, the grant log if there is a rate, and how many more
-- deliveries may run if concurrency is limited; or nil and the script's reply. `turn` is when the last
-- reply told the consumer to ask again, or 0.
local function capacity(count, turn)
  local concurrent = nil
  if most > 0 then
    concurrent = most - pending_now()
    if concurrent <= 0 then
      redis.call('hset', limits, 'w', string.format('%.0f', ms + WAIT_MS))
      return nil, { 'FULL' }
    end
    count = math.min(count, concurrent)
  end
  if rate == 0 then
    return count, nil, concurrent
  end
  local free, words, first = window(redis.call('hget', limits, 'r'), rate, width, now)
  if free > 0 then
    return math.min(count, free), words, concurrent
  end
  if turn <= now then
    turn = next_turn(number_of(redis.call('hget', limits, 't')), words, first, rate, width, now)
    redis.call('hset', limits, 't', string.format('%.0f', turn))
  end
  return nil, { 'LATER', math.max(1, turn - now), string.format('%.0f', turn) }
end

local state = redis.call('hmget', control, 'paused', 'ranked', 'ordered')
if (state[3] or '0') ~= ARGV[11] then
  return 'OTHER'
end
if state[1] == '1' then
  return 'PAUSED'
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', limits, '')

local taking = taking_from({ ready, front }, group, consumer)
taking.seen = { 0, 0 }
if ARGV[9] == '0' then
  local left = read(taking, 1, MOST_READ)
  line_up(taking, 1, true)
  return taking.failed or { 'LINED', left == 0 and 1 or 0 }
end

local count, words, concurrent = capacity(tonumber(ARGV[9]), number_of(ARGV[10]))
if not count then
  return words
end

-- Read the next messages by their rank, and return how many of them were put into lines, and how many may still be taken.
local function read_next(left)
  if state[2] then
    local keys = { ready = ready, front = front, control = control, priority = priority, waiting = waiting }
    left = take_by_rank(taking, keys, left)
  else
    left = read(taking, 1, left)
  end
  local lined_up = line_up(taking, 2) + line_up(taking, 1)
  return lined_up, left + lined_up
end

local left, budget = read(taking, 2, count), MOST_READ
left = left + line_up(taking, 2)
if ARGV[12] == '1' then
  left = take_in_turn(taking, left, read_next)
else
  left = take_due(taking, left)
  while left > 0 and budget > 0 do
    local lined_up, after = read_next(left)
    budget, left = budget - lined_up - 1, after
    if lined_up == 0 then
      break
    end
  end
end

local found = count_taken(taking)
if taking.failed and (found == 0 or taking.is_broken) then
  return taking.failed
end
if key_rate > 0 then
  keep_taken(taking, forget_past, 200 + 2 * found)
end
if words and found > 0 then
  redis.call('hset', limits, 'r', granted(words, found, rate, width, now))
end
keep_taken(taking, settle_waiters, found, left, concurrent)
local next_check = keep_taken(taking, redis.call, 'zrange', checks, 0, 0, 'withscores')
local next_ms = next_check and next_check[2] and math.min(9e15, math.max(1, math.ceil(next_check[2] - ms))) or -1
local taken, ranked = taking.taken, state[2] and 1 or 0
return { 'TAKEN', taken[1], taken[2], taking.lead or #taken[2], next_ms, ranked, (budget <= 0 or left == 0) and 1 or 0 }
