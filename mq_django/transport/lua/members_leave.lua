-- Remove consumers that hold no deliveries, and their supervisor if none is left.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- KEYS[2]  and on       the streams from which deliveries are read
-- ARGV[1]  group
-- ARGV[2]  supervisor   removed when no consumer remains; '' for none
-- then the ids of the consumers
--
-- Returns the consumers that remain because they hold deliveries: removing them would lose these.

local remaining = {}
for i = 3, #ARGV do
  local holds = false
  for stream = 2, #KEYS do
    local group = redis.pcall('xpending', KEYS[stream], ARGV[1], '-', '+', 1, ARGV[i])
    holds = holds or (not group.err and #group > 0)
  end
  if holds then
    remaining[#remaining + 1] = ARGV[i]
  else
    for stream = 2, #KEYS do
      redis.pcall('xgroup', 'delconsumer', KEYS[stream], ARGV[1], ARGV[i])
    end
    redis.call('hdel', KEYS[1], 'consumer:' .. ARGV[i], 'ask:' .. ARGV[i])
  end
end
if ARGV[2] ~= '' and #remaining == 0 then
  local kinds = { 'supervisor:', 'beat:', 'seen:', 'ask:', 'evicted:' }
  for _, kind in ipairs(kinds) do
    redis.call('hdel', KEYS[1], kind .. ARGV[2])
  end
end
return remaining
