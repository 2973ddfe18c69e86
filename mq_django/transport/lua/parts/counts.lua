-- Count what was published by name, and under no name in all: pages of many queues read nothing else. The first count of
-- a slot is when its hash may be new: it then gets its time to live, a day and two hours, and 35 days.
local function count_published(minutes, minute, hours, hour, counts)
  local total = 0
  local function add(name, count)
    if redis.call('hincrby', minutes, minute .. '|published|' .. name, count) == count then
      redis.call('expire', minutes, 93600)
    end
    if redis.call('hincrby', hours, hour .. '|published|' .. name, count) == count then
      redis.call('expire', hours, 3024000)
    end
    total = total + count
  end
  for name, count in pairs(counts) do
    add(name, count)
  end
  if total > 0 then
    add('', total)
  end
end
