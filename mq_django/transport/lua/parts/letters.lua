-- with groups
-- How many of each group were removed, to be counted at once.
local removed = {}

-- Take a dead letter out of its queue, and its id with it.
local function remove_letter(dead, ids, entry, fields)
  local group = group_of(fields, 1, #fields)
  removed[group] = (removed[group] or 0) + 1
  redis.call('xdel', dead, entry)
  for at = 1, #fields, 2 do
    -- A message buried again meanwhile under the same id has an entry of its own.
    if fields[at] == 'id' and redis.call('hget', ids, fields[at + 1]) == entry then
      redis.call('hdel', ids, fields[at + 1])
    end
  end
end

local function uncount_removed(groups)
  for group, gone in pairs(removed) do
    uncount_dead(groups, group, gone)
  end
end

-- What burying added (a header may well be called `deadline`, so the names are spelled out).
local BURIED = {
  deadreason = 1, deaderror = 1, deadtraceback = 1, deadattempts = 1, deadfirst = 1, deadbody = 1, deadstory = 1,
}

-- The story that a message takes along: the traceback of its last attempt stood in a field of its own.
local function story_of(values)
  local told = values.deadstory
  if not told or string.sub(told, -1) ~= '}' then
    return told
  end
  return string.sub(told, 1, -2) .. ',"traceback":' .. cjson.encode(values.deadtraceback or '') .. '}'
end

-- Return the fields that a message goes back with, without some, or nil when it is no message; and its values.
local function message_fields(fields, dropped)
  local back, values = {}, {}
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    values[name] = value
    if not BURIED[name] and not dropped[name] then
      back[#back + 1] = name
      back[#back + 1] = value
    end
  end
  -- Lua unpacks no more than about 8000 values, and an error half-way would leave a batch half done.
  if values.deadraw or not values.type or #fields > 4000 then
    return nil, values
  end
  return back, values
end
