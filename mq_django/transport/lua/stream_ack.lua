-- Settle deliveries that are done.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the ids of the entries
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

local home, group, consumer = KEYS[1], ARGV[1], ARGV[2]

-- Messages are mostly done in the order they came, so that the oldest of what the consumer holds are nearly all of
-- them: asked for together they take half as long as one by one.
local holds = {}
local function still_held(entry)
  return holds[entry] or #redis.call('xpending', home, group, entry, entry, 1, consumer) == 1
end
if #ARGV > 10 then
  for _, pending in ipairs(redis.call('xpending', home, group, '-', '+', #ARGV, consumer)) do
    holds[pending[1]] = true
  end
end

local held, stale = {}, {}
for i = 3, #ARGV do
  local list = still_held(ARGV[i]) and held or stale
  list[#list + 1] = ARGV[i]
end
if #held > 0 then
  redis.call('xack', home, group, unpack(held))
  redis.call('xdel', home, unpack(held))
end
return stale
