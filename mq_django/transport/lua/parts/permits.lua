-- with windows
-- Permits of single keys. Uses the names of parts/limits.

-- A permit is valid while its delivery is pending or its entry exists: settling removes both.
local function is_valid(permit)
  local stream, entry = string.match(permit, '^(%d)%-(.*)$')
  local stream = stream == '0' and ready or urgent
  local pending = redis.pcall('xpending', stream, group, entry, entry, 1)
  return not pending.err and #pending > 0 or #redis.call('xrange', stream, entry, entry) > 0
end

-- Return a function that takes a permit of a key for a delivery; or nil and the time of the next check, ms.
local function permit_of(key)
  local hash = hash_of(key)
  if key_most > 0 and redis.call('zcount', permits, hash, hash) >= key_most then
    for _, permit in ipairs(redis.call('zrangebyscore', permits, hash, hash, 'limit', 0, key_most)) do
      if not is_valid(permit) then
        redis.call('zrem', permits, permit)
      end
    end
    if redis.call('zcount', permits, hash, hash) >= key_most then
      return nil, ms + 10000
    end
  end
  local free, words, first = 1, nil, nil
  if key_rate > 0 then
    free, words, first = window(redis.call('hget', limits, 'r:' .. key), key_rate, key_width, now)
    if free <= 0 then
      return nil, math.ceil(first / 1000)
    end
  end
  return function(stream, entry)
    redis.call('zadd', permits, hash, stream .. '-' .. entry)
    if words then
      redis.call('hset', limits, 'r:' .. key, granted(words, 1, key_rate, key_width, now))
      redis.call('zadd', rates, math.ceil((now + key_width) / 1000), key)
    end
  end
end

-- Remove up to `count` grant logs of keys without grants in their window. `count` is higher than the number of logs
-- that one call adds, so that they do not pile up.
local function forget_past(count)
  local past = redis.call('zrangebyscore', rates, '-inf', ms, 'limit', 0, count)
  for _, key in ipairs(past) do
    redis.call('hdel', limits, 'r:' .. key)
  end
  if #past > 0 then
    redis.call('zrem', rates, unpack(past))
  end
end
