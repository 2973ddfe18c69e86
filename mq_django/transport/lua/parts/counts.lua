-- Count what was published, by name. The first count of a slot is when its hash may be new: it then gets its time to
-- live, a day and two hours, and 35 days.
local function count_published(minutes, minute, hours, hour, counts)
  for name, count in pairs(counts) do
    if redis.call('hincrby', minutes, minute .. '|published|' .. name, count) == count then
      redis.call('expire', minutes, 93600)
    end
    if redis.call('hincrby', hours, hour .. '|published|' .. name, count) == count then
      redis.call('expire', hours, 3024000)
    end
  end
end
