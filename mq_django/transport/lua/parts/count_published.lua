-- with bound_names
-- Count published messages by name, and in a total without a name, which pages with many queues read. The first count
-- of a slot may create the hash, so it sets the time to live: 26 hours, and 35 days.
local function count_published(minutes, minute, hours, hour, counts)
  local try, in_minute, in_hour, total = redis.pcall, minute .. '|published|', hour .. '|published|', 0
  for name, count in pairs(counts) do
    if try('hincrby', minutes, in_minute .. name, count) == count then
      bound_names(minutes, in_minute, name, count)
    end
    if try('hincrby', hours, in_hour .. name, count) == count then
      bound_names(hours, in_hour, name, count)
    end
    total = total + count
  end
  if total == 0 then
    return
  end
  if try('hincrby', minutes, in_minute, total) == total then
    try('expire', minutes, 93600)
  end
  if try('hincrby', hours, in_hour, total) == total then
    try('expire', hours, 3024000)
  end
end
