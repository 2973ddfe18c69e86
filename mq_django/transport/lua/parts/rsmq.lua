-- with numbers
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
