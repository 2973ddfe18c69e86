-- with numbers
-- Return a new generation of a group. It is no less than the clock, so that a group that was removed and created again
-- does not reuse one.
local function next_generation(control, now)
  local before = number_of(redis.call('hget', control, 'log-generation'))
  return string.format('%.0f', math.max(before + 1, now))
end
