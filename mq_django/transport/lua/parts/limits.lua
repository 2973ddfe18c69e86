-- with windows
-- The keys and first arguments of every script about limits, and the permits of single keys.
--
-- KEYS[1..6]   ready, urgent, control, priority, waiting, unique
-- KEYS[7]      limits    {queue}:limits    HASH     logs of grants: 'r' of the queue, 'r:' key; 't' the last turn that
--                                                   somebody was given, 'w' somebody waits for a permit
-- KEYS[8]      rates     {queue}:rates     ZSET     keys by when their log is past, ms
-- KEYS[9]      permits   {queue}:permits   ZSET     home '-' entry of deliveries, by the hash of their key
-- KEYS[10]     parked    {queue}:parked    ZSET     members over the limit of their key, by its hash
-- KEYS[11]     turns     {queue}:turns     ZSET     keys that have parked ones, by when to look at them, ms
-- KEYS[12]     freed     {queue}:freed     STREAM   wakes one that waits for a permit of the queue
-- ARGV[1..2]   group, consumer
-- ARGV[3..5]   of the queue: deliveries in a window, its microseconds, deliveries at once; 0: no limit
-- ARGV[6..8]   of a key: the same
local ready, urgent, control, priority, waiting, unique = unpack(KEYS, 1, 6)
local limits, rates, permits, parked, turns, freed = unpack(KEYS, 7, 12)
local group, consumer = ARGV[1], ARGV[2]
local rate, width, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local key_rate, key_width, key_most = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)

local function hash_of(key)
  return string.format('%.0f', tonumber(string.sub(redis.sha1hex(key), 1, 13), 16))
end

-- A permit is as good as its entry: one that was settled, however, is in its stream no more.
local function is_there(permit)
  local home, entry = string.match(permit, '^(%d)%-(.*)$')
  local stream = home == '0' and ready or urgent
  local pending = redis.pcall('xpending', stream, group, entry, entry, 1)
  return not pending.err and #pending > 0 or #redis.call('xrange', stream, entry, entry) > 0
end

-- Return what takes a permit of a key for a delivery, or nil and when to ask again, ms.
local function permit_of(key)
  local hash = hash_of(key)
  if key_most > 0 and redis.call('zcount', permits, hash, hash) >= key_most then
    for _, permit in ipairs(redis.call('zrangebyscore', permits, hash, hash, 'limit', 0, key_most)) do
      if not is_there(permit) then
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
  return function(home, entry)
    redis.call('zadd', permits, hash, home .. '-' .. entry)
    if words then
      redis.call('hset', limits, 'r:' .. key, granted(words, 1, key_rate, key_width, now))
      redis.call('zadd', rates, math.ceil((now + key_width) / 1000), key)
    end
  end
end

-- Make the first parked message of a key ready, if there is a permit for it, and return its entry.
local function release(key, home)
  local hash = hash_of(key)
  local member = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, 1)[1]
  if not member then
    redis.call('zrem', turns, key)
    return nil
  end
  local take, again = permit_of(key)
  redis.call('zadd', turns, take and ms or again, key)
  if not take then
    return nil
  end
  local id, body = redis.call('hget', unique, member) or member, redis.call('hget', waiting, member)
  redis.call('zrem', parked, member)
  redis.call('hdel', waiting, member)
  redis.call('hdel', unique, member, id)
  if not body then
    return nil
  end
  if home == 1 and redis.call('exists', urgent) == 0 then
    redis.call('xgroup', 'create', urgent, group, '0', 'mkstream')
  end
  local entry = redis.call('xadd', home == 1 and urgent or ready, '*', 'id', id, 'message', body)
  take(home, entry)
  return entry
end

local function pending_now()
  local pending = 0
  for _, stream in ipairs({ ready, urgent }) do
    local found = redis.pcall('xpending', stream, group)
    pending = pending + (found.err and 0 or found[1])
  end
  return pending
end
