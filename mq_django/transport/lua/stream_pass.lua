-- Pass deliveries on from one consumer to another, uncounted.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  new owner  holds them from now on
-- then the ids of the entries
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

local held, stale = {}, {}
for i = 4, #ARGV do
  if #redis.call('xpending', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2]) == 1 then
    held[#held + 1] = ARGV[i]
  else
    stale[#stale + 1] = ARGV[i]
  end
end
if #held > 0 then
  held[#held + 1] = 'justid'
  redis.call('xclaim', KEYS[1], ARGV[1], ARGV[3], 0, unpack(held))
end
return stale
