-- The first due time, and what wakes those who sleep until then when another has come before it.
local function first_due(due)
  return redis.call('zrange', due, 0, 0, 'withscores')[2]
end

local function wake_if_earlier(due, before, channel)
  local first = first_due(due)
  if first and (not before or tonumber(first) < tonumber(before)) then
    redis.call('publish', channel, 'due ' .. first)
  end
end
