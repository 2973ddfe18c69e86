-- Count the messages before a ready message.
--
-- KEYS[1]  ready     {queue}:ready     STREAM
-- KEYS[2]  front     {queue}:front     STREAM
-- KEYS[3]  priority  {queue}:priority  ZSET    score: see parts/ranks; negative: before `ready`
-- ARGV[1]  group
-- ARGV[2]  place      'ready', 'front' or 'priority'
-- ARGV[3]  entry      of the stream, or the member of `priority`
-- ARGV[4]  limit      entries counted per stream
--
-- Returns the number.

-- with undelivered
local place, entry, limit = ARGV[2], ARGV[3], ARGV[4]

local function before(stream)
  local first = undelivered(stream, ARGV[1], 1)[1]
  return first and #redis.call('xrange', stream, first[1], '(' .. entry, 'count', limit) or 0
end

if place == 'front' then
  return before(KEYS[2])
end
local count = #undelivered(KEYS[2], ARGV[1], limit)
if place == 'ready' then
  return count + redis.call('zcount', KEYS[3], '-inf', '(0') + before(KEYS[1])
end
local rank = redis.call('zrank', KEYS[3], entry) or 0
if tonumber(redis.call('zscore', KEYS[3], entry) or 0) > 0 then
  count = count + #undelivered(KEYS[1], ARGV[1], limit)
end
return count + rank
