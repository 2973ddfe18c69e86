-- with tokens
-- Whether a message of a key may run. Uses the names of parts/line_keys and lines_fetch.
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
    return redis.call('zscore', KEYS[13], name) or redis.call('zscore', KEYS[14], name)
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
