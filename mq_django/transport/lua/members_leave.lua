-- Remove consumers and supervisors that hold nothing.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- KEYS[2]  ready        {queue}:ready       STREAM
-- KEYS[3]  urgent       {queue}:urgent      STREAM
-- ARGV[1]  group
-- ARGV[2]  supervisor   removed too, unless it is ''
-- then the ids of the consumers
--
-- Returns the consumers that stay, because they hold deliveries: removing them would lose these.

local stay = {}
for i = 3, #ARGV do
  local holds = false
  for _, home in ipairs({ KEYS[2], KEYS[3] }) do
    local group = redis.pcall('xpending', home, ARGV[1], '-', '+', 1, ARGV[i])
    holds = holds or (not group.err and #group > 0)
  end
  if holds then
    stay[#stay + 1] = ARGV[i]
  else
    redis.pcall('xgroup', 'delconsumer', KEYS[2], ARGV[1], ARGV[i])
    redis.pcall('xgroup', 'delconsumer', KEYS[3], ARGV[1], ARGV[i])
    redis.call('hdel', KEYS[1], 'consumer:' .. ARGV[i])
  end
end
if ARGV[2] ~= '' and #stay == 0 then
  redis.call('hdel', KEYS[1], 'supervisor:' .. ARGV[2], 'beat:' .. ARGV[2], 'seen:' .. ARGV[2])
end
return stay
