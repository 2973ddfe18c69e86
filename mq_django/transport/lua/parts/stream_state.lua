-- with lists
-- with numbers
-- Return the groups of a stream, by Redis's names of their fields.
local function groups_of(stream)
  local found = redis.call('exists', stream) == 1 and redis.call('xinfo', 'groups', stream) or {}
  for at, flat in ipairs(found) do
    found[at] = pairs_of(flat)
  end
  return found
end

-- Return a new generation of a group. It is no less than the clock, so that a group that was removed and created again
-- does not reuse one.
local function next_generation(control, now)
  local before = number_of(redis.call('hget', control, 'log-generation'))
  return string.format('%.0f', math.max(before + 1, now))
end

-- Return the two numbers in the id of an entry.
local function entry_id(text)
  local ms, number = string.match(text, '^(%d+)%-(%d+)$')
  return { tonumber(ms), tonumber(number) }
end

local function is_before(a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end
