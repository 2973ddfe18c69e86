-- Return the first due time, if any.
local function first_due(due)
  return redis.call('zrange', due, 0, 0, 'withscores')[2]
end

-- Wake processes that sleep until the first due time, when there is now an earlier one.
local function wake_if_earlier(due, before, channel)
  local first = first_due(due)
  if first and (not before or tonumber(first) < tonumber(before)) then
    redis.call('publish', channel, string.format('due %.0f', math.floor(first)))
  end
end
