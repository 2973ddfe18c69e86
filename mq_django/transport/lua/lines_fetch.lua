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
-- the next look at a line or -1, 1 if priorities were ever used, 1 if there may be more to take at once, and with ageing
-- what stream_fetch returns then}.

-- with line_keys
-- with windows
-- with lists
-- with numbers
-- with take_by_priority
-- with undelivered
-- with tokens
-- Whether a message of a key may run.
local tags = KEYS[16]
-- With order one message of a key runs at a time.
local most_of_key = ARGV[11] == '1' and 1 or key_most
-- Without any of these, as with limits of the queue alone, no message is asked for its key.
local uses_keys = most_of_key > 0 or key_rate > 0 or ARGV[12] == '1'
-- A key at its limit is looked at again after this time, ms: another program may have removed what runs.
local CHECK_AGAIN_MS = 10000

local function is_undelivered(stream, entry)
  local first = undelivered(stream, group, 1)[1]
  local found = redis.call('xrange', stream, entry, entry)[1]
  return first and found and #redis.call('xrange', stream, first[1], entry, 'count', 1) == 1
end

-- A token is valid while its message is where the token says.
local function is_valid(token)
  local kind, name = string.match(token, '^(.)%-(.*)$')
  if kind == 'm' then
    return redis.call('zscore', KEYS[13], name) or redis.call('zscore', KEYS[14], name) or redis.call('zscore', parked, name)
  elseif kind == 'd' then
    return #redis.call('xrange', KEYS[15], name, name) > 0
  end
  local stream = kind == '1' and front or ready
  local pending = redis.pcall('xpending', stream, group, name, name, 1)
  return not pending.err and #pending > 0 or is_undelivered(stream, name)
end

local function is_full(hash)
  return most_of_key > 0 and redis.call('zcount', permits, hash, hash) >= most_of_key
end

local function drop_invalid(hash)
  for _, token in ipairs(redis.call('zrangebyscore', permits, hash, hash, 'limit', 0, most_of_key)) do
    local is_known, valid = pcall(is_valid, token)
    if not is_known or not valid then
      redis.call('zrem', permits, token)
    end
  end
end

-- Return a function that notes that an entry of a key runs, given its token; or nil and the time of the next look, ms.
local function permit_of(key, hash)
  if is_full(hash) then
    drop_invalid(hash)
    if is_full(hash) then
      return nil, ms + CHECK_AGAIN_MS
    end
  end
  local free, words, first = 1, nil, nil
  if key_rate > 0 then
    free, words, first = window(redis.call('hget', limits, 'r:' .. key), key_rate, key_width, now)
    if free <= 0 then
      return nil, math.ceil(first / 1000)
    end
  end
  return function(token)
    if most_of_key > 0 or key_rate > 0 then
      redis.call('zadd', permits, hash, token)
    end
    if words then
      redis.call('hset', limits, 'r:' .. key, granted(words, 1, key_rate, key_width, now))
      redis.call('zadd', rates, math.ceil((now + key_width) / 1000), key)
    end
  end
end

-- Remove up to `count` grant logs of keys without grants in their window. `count` is higher than the number of logs
-- that a call adds, so that they do not pile up.
local function forget_past(count)
  local past = redis.call('zrangebyscore', rates, '-inf', ms, 'limit', 0, count)
  for _, key in ipairs(past) do
    redis.call('hdel', limits, 'r:' .. key)
  end
  if #past > 0 then
    redis.call('zrem', rates, unpack(past))
  end
end
-- with waiting_members
-- with line_fields
-- with line_places
-- Lines: one for each key, of messages that may not run yet.

-- Maximum messages that a call puts into lines: about 4 ms.
local MOST_READ = 250
local of_lines = { control = control, parked = parked, waiting = waiting, unique = unique }
-- The line of the messages without a key, with FAIR. No hash of a key has 17 digits.
local NO_KEY = '10000000000000000'

local function line_goes_on(hash)
  return redis.call('zcount', parked, hash, hash) > 0
end

-- Return the hashes among the members of a sorted set, and remove the others, which would otherwise stand before them.
local function hashes_in(set, members)
  local hashes = only_hashes(members)
  if #hashes < #members then
    local is_hash = {}
    for _, hash in ipairs(hashes) do
      is_hash[hash] = true
    end
    for _, member in ipairs(members) do
      if not is_hash[member] then
        redis.call('zrem', set, member)
      end
    end
  end
  return hashes
end

-- Put a message into a line, but do not remove its entry. `is_returning`: to the front.
local function put_into_line(hash, entry, fields, is_returning)
  local id
  for at = 1, #fields, 2 do
    id = fields[at] == 'id' and fields[at + 1] or id
  end
  if not id then
    add_all(fields, 'id', entry)
  end
  keep_time(fields, entry)
  park(of_lines, hash, is_returning and RETURNING or ARRIVING, id or entry, packed(fields))
end

-- Decide about one entry. Return true if it may run now.
local function may_run(number, entry, fields, takes_turns)
  local token, key = (number == 2 and '1-' or '0-') .. entry, #fields <= 1000 and key_of(fields) or nil
  if not key and not takes_turns then
    return true
  end
  local hash = key and hash_of(key) or NO_KEY
  -- With a token it was let through before, and handed back or promoted since.
  if redis.call('zscore', permits, token) then
    return true
  end
  local permit, next_check
  if not line_goes_on(hash) then
    permit, next_check = nil, at_once
    if key then
      permit, next_check = permit_of(key, hash)
    end
    if permit and not takes_turns then
      permit(token)
      return true
    end
    redis.call('zadd', checks, permit and at_once or next_check, hash)
  end
  put_into_line(hash, entry, fields, number == 2)
  return false
end

-- Put those messages into lines that were read from a stream since the last call and may not run. Return how many.
-- `takes_turns`: all of them, with FAIR.
local function line_up(taking, number, takes_turns)
  if not uses_keys then
    taking.seen[number] = #taking.taken[number]
    return 0
  end
  local taken, gone, kept, seen, lead = taking.taken[number], {}, {}, taking.seen[number], taking.lead or 0
  for at, found in ipairs(taken) do
    local runs = at <= seen or keep_taken(taking, may_run, number, found[1], found[2], takes_turns)
    if runs then
      kept[#kept + 1] = found
    elseif runs == false then
      gone[#gone + 1] = found[1]
    else
      -- It may not run, and an error shows the consumer that it holds it.
      taking.is_broken = true
    end
    if number == 2 and not runs and at <= lead then
      taking.lead = taking.lead - 1
    end
  end
  taking.taken[number] = kept
  taking.seen[number] = #kept
  if #gone > 0 then
    local stream = number == 2 and front or ready
    redis.call('xack', stream, group, unpack(gone))
    redis.call('xdel', stream, unpack(gone))
  end
  return #gone
end

-- Let the first message of a line go to `front` if its key may run. Return true, or nil and the time of the next look;
-- without a time the line is empty.
local function release_first(hash)
  local member = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, 1)[1]
  if not member then
    return nil
  end
  local id = redis.call('hget', unique, member) or member
  local body = redis.call('hget', waiting, member)
  local fields = body and fields_in(body, id)
  local key, permit, next_check = fields and key_of(fields), nil, nil
  if key then
    permit, next_check = permit_of(key, hash)
    if not permit then
      return nil, next_check
    end
  end
  local entry
  if fields then
    if redis.call('exists', front) == 0 then
      redis.call('xgroup', 'create', front, group, '0', 'mkstream')
    end
    entry = redis.call('xadd', front, '*', unpack(fields))
  end
  redis.call('zrem', parked, member)
  redis.call('hdel', waiting, member)
  forget_member(unique, member, id)
  if permit then
    -- Last, because a log of another type fails: then the next fetch decides about the entry.
    permit('1-' .. entry)
  end
  -- What is left of a message that was deleted by hand counts as none.
  return fields and true or release_first(hash)
end

-- Read what was released, which has its tokens.
local function read_released(taking, left, released)
  local after = read(taking, 2, released)
  taking.seen[2] = #taking.taken[2]
  return left - (released - after)
end

-- Take the first messages of the lines that are due to be checked.
local function take_due(taking, left)
  local released = 0
  keep_taken(taking, function()
    -- The queue had FAIR before.
    for _, hash in ipairs(hashes_in(tags, redis.call('zrange', tags, 0, left - 1))) do
      redis.call('zadd', checks, at_once, hash)
      redis.call('zrem', tags, hash)
    end
    while released < left do
      local due = redis.call('zrangebyscore', checks, '-inf', at_once, 'limit', 0, left - released)
      for _, hash in ipairs(hashes_in(checks, due)) do
        local is_released, next_check = release_first(hash)
        released = released + (is_released and 1 or 0)
        if is_released and line_goes_on(hash) then
          -- Behind the others, or not before the one that was released ends.
          next_check = is_full(hash) and ms + CHECK_AGAIN_MS or ms + 1
        end
        if next_check then
          redis.call('zadd', checks, string.format('%.0f', next_check), hash)
        else
          redis.call('zrem', checks, hash)
        end
      end
      if #due == 0 then
        break
      end
    end
  end)
  return released > 0 and read_released(taking, left, released) or left
end

-- Wake another consumer if there is something left for it; if nothing is, note that this one will wait. The group `wake`
-- then begins where the group of the queue is, so that a message that comes before it waits wakes it at once.
local function settle_waiters(found, left, concurrent)
  local may_wait = number_of(redis.call('hget', limits, 'w')) > ms
  local more = left == 0
    and (concurrent and concurrent > found or redis.call('zcount', checks, '-inf', at_once) > 0 or redis.call('exists', tags) == 1)
  if found > 0 and may_wait and more then
    redis.pcall('xadd', wakeups, 'maxlen', '~', 16, '*', 'n', 1)
  end
  if found == 0 then
    for _, flat in ipairs(redis.call('xinfo', 'groups', ready)) do
      local found_group = pairs_of(flat)
      if found_group.name == group then
        redis.pcall('xgroup', 'setid', ready, 'wake', found_group['last-delivered-id'])
      end
    end
    redis.call('hset', limits, 'w', string.format('%.0f', ms + WAIT_MS))
  end
end
-- Turns, with FAIR: of all lines that may go on, the one with the lowest tag is next. Taking a message moves the time of
-- the turns, `turn` in control, to its tag, and the tag of its key 1000 divided by its weight beyond that. So a key that
-- was quiet is never behind more than one message of each other key, and none starves. Start-time fair queueing, by
-- Goyal, Vin and Cheng, 1996. Uses the names of lines_fetch.
local steps = {}
for at = 13, #ARGV, 2 do
  steps[ARGV[at]] = tonumber(ARGV[at + 1])
end

local function give_turn(hash, time)
  redis.call('zadd', tags, string.format('%.3f', time + (steps[hash] or 1000)), hash)
end

-- Give turns to the keys whose lines may go on.
local function give_due_turns(time)
  local due = redis.call('zrangebyscore', checks, '-inf', at_once, 'limit', 0, MOST_READ)
  for _, hash in ipairs(hashes_in(checks, due)) do
    if line_goes_on(hash) and not redis.call('zscore', tags, hash) then
      give_turn(hash, time)
    end
    redis.call('zrem', checks, hash)
  end
end

-- Take the turn of a key. Return 1 if a message of it was released.
local function take_turn(hash, time)
  local is_released, next_check = release_first(hash)
  if is_released and line_goes_on(hash) then
    if not is_full(hash) then
      give_turn(hash, time)
      return 1
    end
    next_check = ms + CHECK_AGAIN_MS
  end
  if next_check then
    redis.call('zadd', checks, next_check, hash)
  end
  redis.call('zrem', tags, hash)
  return is_released and 1 or 0
end

-- Take messages by turns, and return how many may still be taken.
local function take_in_turn(taking, left, read_next)
  if redis.call('exists', tags, parked) == 0 then
    local lined_up, after = read_next(left)
    left = after
    if left > 0 and lined_up == 0 then
      return left
    end
  end
  -- All that is ready gets into lines, a part in each call: only there is it known whose turn it is.
  read(taking, 1, MOST_READ)
  line_up(taking, 1, true)
  local released = 0
  keep_taken(taking, function()
    local time = number_of(redis.call('hget', control, 'turn'))
    give_due_turns(time)
    while released < left do
      local first = redis.call('zrange', tags, 0, 0, 'withscores')
      if not first[1] then
        break
      end
      if hashes_in(tags, { first[1] })[1] then
        time = math.max(time, number_of(first[2]))
        released = released + take_turn(first[1], time)
      end
    end
    redis.call('hset', control, 'turn', string.format('%.3f', time))
  end)
  return released > 0 and read_released(taking, left, released) or left
end

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

if (state[4] or '0') ~= ARGV[11] then
  return 'OTHER'
end
if state[2] == '1' then
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

local ageing = ageing_of(state[5])

-- Read the next messages by their rank, and return how many of them were put into lines, and how many may still be taken.
local function read_next(left)
  if state[3] then
    local keys = { ready = ready, front = front, control = control, priority = priority, waiting = waiting, ageing = ageing }
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
local taken, ranked, more = taking.taken, state[3] and math.max(1, ageing or 0) or 0, (budget <= 0 or left == 0) and 1 or 0
return { 'TAKEN', taken[1], taken[2], taking.lead or #taken[2], next_ms, ranked, more, places_of(taking) }
