-- Turns, with FAIR: of all lines that may go on, the one with the lowest tag is next. Taking a message moves the time of
-- the turns, `turn` in control, to its tag, and the tag of its key 1000 divided by its weight beyond that. So a key that
-- was quiet is never behind more than one message of each other key, and none starves. Start-time fair queueing, by
-- Goyal, Vin and Cheng, 1996. Uses the names of parts/lines.
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
