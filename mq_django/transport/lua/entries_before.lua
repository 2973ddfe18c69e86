-- Count the messages before a ready message.
--
-- KEYS[1]  ready     {queue}:ready     STREAM
-- KEYS[2]  front     {queue}:front     STREAM
-- KEYS[3]  priority  {queue}:priority  ZSET    score: see parts/ranks; below the ms of an entry of `ready`: before it
-- ARGV[1]  group
-- ARGV[2]  place      'ready', 'front' or 'priority'
-- ARGV[3]  entry      of the stream, or the member of `priority`
-- ARGV[4]  limit      entries counted per stream
--
-- Returns the number.

-- with undelivered
local place, entry, limit = ARGV[2], ARGV[3], ARGV[4]

local function before(stream, last)
  local first = undelivered(stream, ARGV[1], 1)[1]
  return first and #redis.call('xrange', stream, first[1], '(' .. last, 'count', limit) or 0
end

if place == 'front' then
  return before(KEYS[2], entry)
end
local count = #undelivered(KEYS[2], ARGV[1], limit)
if place == 'ready' then
  return count + redis.call('zcount', KEYS[3], '-inf', string.match(entry, '^%d+') or '(0') + before(KEYS[1], entry)
end
local rank = redis.call('zrank', KEYS[3], entry) or 0
local score = tonumber(redis.call('zscore', KEYS[3], entry) or 0)
if score > 0 then
  count = count + before(KEYS[1], string.format('%.0f-0', math.ceil(score)))
end
return count + rank
