-- Return fields and values as a table.
local function pairs_of(flat)
  local found = {}
  for at = 1, #flat, 2 do
    found[flat[at]] = flat[at + 1]
  end
  return found
end

-- Return the groups of a stream, by Redis's names of their fields.
local function groups_of(stream)
  local found = redis.call('exists', stream) == 1 and redis.call('xinfo', 'groups', stream) or {}
  for at, flat in ipairs(found) do
    found[at] = pairs_of(flat)
  end
  return found
end
