-- Return a text for an entry's id that sorts as the id does. Ids have up to 64 bits, more than a number here.
local function sortable(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #number) .. number
end

-- Return the state of a stream and one of its groups by Redis's names of the fields, without `group` if the group does
-- not exist; nil if the stream does not exist.
local function stream_state(stream, group)
  if redis.call('exists', stream) == 0 then
    return nil
  end
  local function pairs_of(flat)
    local found = {}
    for at = 1, #flat, 2 do
      found[flat[at]] = flat[at + 1]
    end
    return found
  end
  local state = pairs_of(redis.call('xinfo', 'stream', stream))
  for _, flat in ipairs(redis.call('xinfo', 'groups', stream)) do
    local found = pairs_of(flat)
    if found.name == group then
      state.group = found
    end
  end
  return state
end

-- Return how many entries are after one up to another, at most 100, and whether Redis counts as many between them: it
-- also counts entries that were deleted.
local function entries_between(stream, state, from, to)
  local found = redis.pcall('xrange', stream, '(' .. from, to, 'count', 100)
  local first, deleted = state['first-entry'] and state['first-entry'][1], state['max-deleted-entry-id']
  local is_whole = first and sortable(first) <= sortable(from) and sortable(deleted) <= sortable(from)
  return #found, is_whole and #found < 100
end

-- Return whether the last id of a stream is more than a year in the future. Ids only rise, and after the largest one no
-- entry can be added.
local function is_far_ahead(state, now)
  return tonumber(string.match(state['last-generated-id'], '^%d+')) > now + 31536000000
end
