-- Publish a message that claims its unique key until it is handled, or for a time.
--
-- KEYS[1]  claims    {queue}:claims             HASH    'k:' key -> 'until:id' (ms), and 'i:' id -> key
-- KEYS[2]  ready     {queue}:ready              STREAM
-- KEYS[3]  front     {queue}:front              STREAM
-- KEYS[4]  priority  {queue}:priority           ZSET    score: see parts/ranks
-- KEYS[5]  due       {queue}:due                ZSET    score: due time, ms
-- KEYS[6]  waiting   {queue}:waiting            HASH    member -> body
-- KEYS[7]  control   {queue}:control            HASH
-- KEYS[8]  minutes   {queue}:counters:m:<hour>  HASH    counters
-- KEYS[9]  hours     {queue}:counters:h:<day>   HASH    counters
-- ARGV[1..4]  limit  messages the queue may hold, 0: no limit; slots of the counters in `minutes` and `hours`; group
-- ARGV[5]  channel   gets the new first due time
-- ARGV[6]  key
-- ARGV[7]  for       ms, or 0: until it is handled, at most a week after it is due
-- ARGV[8]  mode      '!' (now), '+' (ms from now) or '=' (ms since 1970)
-- ARGV[9]  ms
-- ARGV[10..12]       id, name, body
-- ARGV[13] ageing    optional: ms, see parts/ranks
--
-- Returns {'CLAIMED', id}; or {'TAKEN', id of the message that has the key}, or 'FULL': nothing is written.

-- with types
-- with clock
-- with count
-- with ready
-- with due_times
-- with numbers

-- A claim outlives its message when a program without support for claims settles the message, or the message is deleted
-- by hand. So each claim has an end, and one claim in 16 checks about 100 others and removes expired ones. `claims-at`
-- in control is the cursor.
local function remove_expired_claims(claims, control, now)
  if now_us() % 16 ~= 0 then
    return
  end
  local found = redis.pcall('hscan', claims, redis.call('hget', control, 'claims-at') or '0', 'count', 100)
  redis.call('hset', control, 'claims-at', found.err and '0' or found[1])
  local fields = found[2] or {}
  for at = 1, #fields, 2 do
    local key, ends, id = string.match(fields[at], '^k:(.*)$'), string.match(fields[at + 1], '^(%d+):(.*)$')
    if key and ends and number_of(ends) <= now then
      redis.call('hdel', claims, 'k:' .. key, 'i:' .. id)
    end
  end
end

local claims, ready, front, priority, due, waiting, control, minutes, hours = unpack(KEYS)
local limit, key, lasts, mode, id = tonumber(ARGV[1]), ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[10]

check_types({ [claims] = 'hash', [ready] = 'stream', [priority] = 'zset', [due] = 'zset' })
check_types({ [waiting] = 'hash', [control] = 'hash' })

local now = now_ms()
local due_ms = mode == '!' and now or due_at(mode, ARGV[9], now_us() / 1000)
local ends, holder = string.match(redis.call('hget', claims, 'k:' .. key) or '', '^(%d+):(.*)$')
if holder and number_of(ends) > now then
  return { 'TAKEN', holder }
end
if limit > 0 and redis.call('xlen', ready) + redis.call('xlen', front) + redis.call('hlen', waiting) + 1 > limit then
  return 'FULL'
end
if mode == '!' then
  local failed = make_ready_with(ready, priority, waiting, control, ARGV[4], ARGV[13])(id, ARGV[12])
  if failed then
    return failed
  end
else
  local before = first_due(due)
  redis.call('zadd', due, due_ms, put_body(waiting, id, ARGV[12]))
  wake_if_earlier(due, before, ARGV[5])
end
if holder then
  redis.call('hdel', claims, 'i:' .. holder)
end
ends = lasts > 0 and now + lasts or math.max(now, due_ms) + 604800000
redis.call('hset', claims, 'k:' .. key, string.format('%.0f:%s', ends, id), 'i:' .. id, key)
remove_expired_claims(claims, control, now)
count(minutes, ARGV[2], hours, ARGV[3], 'published', { [ARGV[11]] = 1 })
return { 'CLAIMED', id }
