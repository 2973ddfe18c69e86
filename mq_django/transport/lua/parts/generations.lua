-- with numbers
-- A generation of a group that it never had, not even before it was removed and made again: so it is no less than the
-- clock.
local function next_generation(control, now)
  local before = number_of(redis.call('hget', control, 'log-generation'))
  return string.format('%.0f', math.max(before + 1, now))
end
