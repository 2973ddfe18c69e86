-- with dead_groups
-- Removed dead letters by group, subtracted once at the end.
local removed = {}

-- Remove a dead letter and its id.
local function remove_dead_letter(dead, ids, entry, fields)
  local group = group_of(fields, 1, #fields)
  removed[group] = (removed[group] or 0) + 1
  redis.call('xdel', dead, entry)
  for at = 1, #fields, 2 do
    -- A message with the same id may have been buried since: the id then leads to its entry.
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

-- The fields that burying adds. They are listed by name because a header may be called `deadline`.
local BURIED = {
  deadreason = 1, deaderror = 1, deadtraceback = 1, deadattempts = 1, deadfirst = 1, deadbody = 1, deadstory = 1,
}

-- Return the attempt history of a dead letter, with the traceback of the last attempt, which has a field of its own.
local function history_of(values)
  local history = values.deadstory
  if not history or string.sub(history, -1) ~= '}' then
    return history
  end
  return string.sub(history, 1, -2) .. ',"traceback":' .. cjson.encode(values.deadtraceback or '') .. '}'
end

-- Return the message's fields without the `dropped` ones, or nil when the dead letter is not a valid message; and all
-- values.
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
  -- Lua can unpack about 8000 values; an error would leave the batch half done.
  if values.deadraw or not values.type or #fields > 4000 then
    return nil, values
  end
  return back, values
end
