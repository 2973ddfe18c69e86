-- with clock
-- with limit_changes
-- Return the hash of a key of messages: the first 52 bits of its SHA-1, which a score holds exactly.
local function hash_of(key)
  return string.format('%.0f', tonumber(string.sub(redis.sha1hex(key), 1, 13), 16))
end

-- Return those members of a sorted set that can be hashes. Other programs may write anything.
local function only_hashes(members)
  local found = {}
  for _, member in ipairs(members) do
    found[#found + 1] = #member <= 17 and string.match(member, '^%d+$') or nil
  end
  return found
end

-- The keys and first arguments of the scripts that let messages run: by limits, in order, or in turn.
--
-- KEYS[1..6]   ready, front, control, priority, waiting, unique
-- KEYS[7]      limits    {queue}:limits    HASH     grant logs: 'r' of the queue, 'r:' key; 't' the latest time at
--                                                   which a consumer may ask again; 'w' until when a consumer
--                                                   may be waiting, ms
-- KEYS[8]   rates     {queue}:rates           ZSET    keys by the time their grant log ends, ms
-- KEYS[9]   permits   {queue}:permits         ZSET    see parts/tokens
-- KEYS[10]  parked    {queue}:parked          ZSET    the lines: members by the hash of their key, and by their place
-- KEYS[11]  checks    {queue}:next-checks     ZSET    hashes of keys by the time at which their line is looked at, ms
-- KEYS[12]  wake-ups  {queue}:permit-wakeups  STREAM  an entry wakes a consumer that waits
-- ARGV[1..2]   group, consumer
-- ARGV[3..5]   as in the settings, of the queue: deliveries per window, window in microseconds, concurrent deliveries; 0: no
--              limit
-- ARGV[6..8]   of a key: the same
local ready, front, control, priority, waiting, unique = unpack(KEYS, 1, 6)
local limits, rates, permits, parked, checks, wakeups = unpack(KEYS, 7, 12)
local group, consumer = ARGV[1], ARGV[2]
local rate, width, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local key_rate, key_width, key_most = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

-- The fields that lines_fetch needs are read here, too, so that it reads only once.
local state = redis.call('hmget', control, 'limits', 'paused', 'ranked', 'ordered', 'ageing')
if state[1] then
  local changes = limit_changes(state[1])
  rate, width = limit_now(changes, 'rate', rate, width)
  most = limit_now(changes, 'concurrency', most)
  key_rate, key_width = limit_now(changes, 'key_rate', key_rate, key_width)
  key_most = limit_now(changes, 'key_concurrency', key_most)
end

local now = now_us()
local ms = math.floor(now / 1000)
-- The score of a line that is due to be checked. With microseconds, so that lines keep their order.
local at_once = string.format('%.3f', now / 1000)
-- For how long a consumer waits at most, ms, and a little more.
local WAIT_MS = 6000

-- Return the number of the queue's pending deliveries.
local function pending_now()
  local pending = 0
  for _, stream in ipairs({ ready, front }) do
    local found = redis.pcall('xpending', stream, group)
    pending = pending + (found.err and 0 or found[1])
  end
  return pending
end
