-- with numbers
-- The attributes of an RSMQ queue: vt, delay, maxsize; nothing when the hash is no queue. Some write fractions, which
-- npm cuts off.
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

-- Milliseconds until the next message can be seen, or -1.
local function next_visible(zset, now)
  local next = redis.call('zrangebyscore', zset, string.format('(%.0f', now), '+inf', 'withscores', 'limit', 0, 1)[2]
  return next and math.ceil(math.min(9e15, next - now)) or -1
end
