-- with numbers
-- with clock
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
-- This one removes nothing.
local function allow_writes(zset)
  redis.call('zremrangebyrank', zset, 1, 0)
end

-- Return vt, delay and maxsize of an RSMQ queue; nothing when the hash is not a queue. Fractions,
-- which some clients write, are cut off, as in npm's rsmq.
local function attributes(hash)
  local found = redis.call('hmget', hash, 'vt', 'delay', 'maxsize')
  local numbers = {}
  for i = 1, 3 do
    if not found[i] then
      return nil
    end
    numbers[i] = math.floor(number_of(found[i]))
  end
  return unpack(numbers)
end

-- Return the milliseconds until the next message is visible, or -1.
local function next_visible(zset, now)
  local next = redis.call('zrangebyscore', zset, string.format('(%.0f', now), '+inf', 'withscores', 'limit', 0, 1)[2]
  return next and math.ceil(math.min(9e15, next - now)) or -1
end

-- Tell when the first message is visible, if this is not as before.
local function tell_first(zset, before, channel)
  local first = redis.call('zrange', zset, 0, 0, 'withscores')[2]
  if first ~= before then
    redis.call('publish', channel, 'due ' .. first)
  end
end

-- Remove a message of an RSMQ queue with its notes. Return whether it was in both the sorted set and the hash.
local function remove_message(zset, hash, notes, id)
  local there = redis.call('zrem', zset, id)
  local fields = redis.call('hdel', hash, id, id .. ':rc', id .. ':fr')
  redis.call('hdel', notes, id .. ':free', id .. ':alone', id .. ':lost', id .. ':story')
  return there == 1 and fields > 0
end

-- Note that a receive was no attempt, because its consumer was lost with its machine. The second time the message has to
-- run alone.
local function note_lost(notes, id)
  increment(notes, id .. ':free', 1)
  redis.call('hset', notes, id .. (redis.call('hexists', notes, id .. ':lost') == 1 and ':alone' or ':lost'), '1')
end

-- Note that a message has ended the process in which it ran alone. A suspect also ended the first one, when it ran beside
-- others: that receive counts as an attempt now.
local function note_crashed(notes, id)
  if redis.call('hget', notes, id .. ':alone') == 'suspect' then
    increment(notes, id .. ':free', -1)
  end
  redis.call('hset', notes, id .. ':alone', '1')
end

-- Return where a message of an RSMQ queue waits: 'DELAYED', 'UNHANDLED', or nil when it is visible or a program may
-- have received it. A hidden message that was received belongs to its receiver, unless a consumer of ours has retried
-- it since and its score has not changed.
local function state_of(zset, hash, unhandled, retried, id)
  local score = redis.call('zscore', zset, id)
  if not score or tonumber(score) <= now_ms() then
    return nil
  end
  if redis.call('zscore', unhandled, id) then
    return 'UNHANDLED'
  end
  local untouched = redis.call('hexists', hash, id .. ':rc') == 0
  return (untouched or redis.call('zscore', retried, id) == score) and 'DELAYED' or nil
end
