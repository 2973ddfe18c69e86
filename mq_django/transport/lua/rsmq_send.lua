-- Put messages into an RSMQ queue.
--
-- KEYS[1]  zset      {namespace}:<queue>                        ZSET   score: when visible, ms
-- KEYS[2]  hash      {namespace}:<queue>:Q                      HASH   attributes, bodies, counts
-- KEYS[3]  minutes   {namespace}:<queue>:mq:counters:m:<hour>   HASH
-- KEYS[4]  hours     {namespace}:<queue>:mq:counters:h:<day>    HASH
-- ARGV[1]  limit     messages that the queue may hold; 0: no limit
-- ARGV[2]  minute    slot of the counters
-- ARGV[3]  hour      slot of the counters
-- ARGV[4]  realtime  channel that gets the number of messages, or ''
-- ARGV[5]  wake      channel that gets the new first time at which a message is visible
-- then for each message: its id, or the random part of an id; its length in UTF-16 units; '+' (ms from now), '=' (ms
-- since 1970) or '' (the queue's delay); ms; its name for the counters, or ''; the body
--
-- Returns the ids; or 'NOQUEUE', 'FULL' or 'TOOLONG', or 'EXISTS' when the id of a single message is in use: then
-- nothing is written.

-- with types
-- with clock
-- with count
-- with numbers
-- with rsmq
local zset, hash, minutes, hours = unpack(KEYS)
check_types({ [zset] = 'zset', [hash] = 'hash' })
local _, delay, maxsize = attributes(hash)
if not maxsize then
  return 'NOQUEUE'
end
if ARGV[1] ~= '0' and redis.call('zcard', zset) + (#ARGV - 5) / 6 > tonumber(ARGV[1]) then
  return 'FULL'
end
-- Only a single message may have an id chosen by its publisher.
if #ARGV == 11 and redis.call('hexists', hash, ARGV[6]) == 1 then
  return 'EXISTS'
end
for at = 6, #ARGV, 6 do
  if maxsize ~= -1 and tonumber(ARGV[at + 1]) > maxsize then
    return 'TOOLONG'
  end
end

local function base36(number)
  local digits, text = '0123456789abcdefghijklmnopqrstuvwxyz', ''
  while number > 0 do
    local digit = number % 36
    text = string.sub(digits, digit + 1, digit + 1) .. text
    number = (number - digit) / 36
  end
  return text
end

local micros = now_us()
local now = math.floor(micros / 1000)
local first = redis.call('zrange', zset, 0, 0, 'withscores')[2]
local ids, counts = {}, {}
for at = 6, #ARGV, 6 do
  local id, mode, ms, name = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4]
  if #id == 22 then
    id = base36(micros + #ids) .. id
  end
  ms = mode == '' and delay * 1000 or ms
  redis.call('zadd', zset, whole_due_at(mode, ms, now), id)
  redis.call('hset', hash, id, ARGV[at + 5])
  increment(hash, 'totalsent', 1)
  if ARGV[4] ~= '' then
    redis.call('publish', ARGV[4], redis.call('zcard', zset))
  end
  counts[name] = (counts[name] or 0) + 1
  ids[#ids + 1] = id
end
counts[''] = nil
count(minutes, ARGV[2], hours, ARGV[3], 'published', counts)
tell_first(zset, first, ARGV[5])
return ids
