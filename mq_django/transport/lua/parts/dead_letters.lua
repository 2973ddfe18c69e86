-- with numbers
-- with types
-- Counts of dead letters by error class and message name, kept by the scripts that bury or move dead letters. A field
-- is class '|' name, a value is the count and the time of the last burial, in ms since 1970. After 1000 groups, dead
-- letters of further ones are counted in the field '*'.
local function group_of(fields, from, to)
  local error, name = '', ''
  for at = from, to, 2 do
    if fields[at] == 'deaderror' then
      error = fields[at + 1]
    elseif fields[at] == 'type' then
      name = fields[at + 1]
    end
  end
  error = string.sub(error, 1, 256)
  -- Ruby separates the names of a class by '::', and PHP by a backslash.
  local dotted = string.gsub(string.gsub(error, '::([%a_])', '..%1'), '\\', '.')
  local class, rest = string.match(dotted, '^([%a_][%w_.]*)(.?)')
  local is_class = class and #class <= 200 and (rest == '' or rest == ':')
  return (is_class and string.sub(error, 1, #class) or '') .. '|' .. string.sub(name, 1, 1020)
end

-- Count a dead letter that was just buried. If the key is not a hash, nothing is counted, and burying and redriving still work.
local function count_dead(groups, dead, group, ms)
  if redis.call('xlen', dead) == 1 then
    -- All earlier dead letters were deleted by hand.
    redis.call('del', groups)
  elseif not usable(groups, 'hash') then
    return
  end
  local known = redis.call('hget', groups, group)
  if not known and redis.call('hlen', groups) >= 1000 then
    group = '*'
    known = redis.call('hget', groups, group)
  end
  local count = number_of(string.match(known or '', '^%d+'))
  redis.call('hset', groups, group, string.format('%.0f %.0f', count + 1, ms))
end

local function uncount_dead(groups, group, removed_count)
  if not usable(groups, 'hash') then
    return
  end
  local known = redis.call('hget', groups, group)
  if not known then
    group = '*'
    known = redis.call('hget', groups, group)
  end
  local count, rest = string.match(known or '', '^(%d+)(.*)$')
  if number_of(count) > removed_count then
    redis.call('hset', groups, group, string.format('%.0f', count - removed_count) .. rest)
  else
    redis.call('hdel', groups, group)
  end
end

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
  deaddue = 1,
}

-- Return the attempt history of a dead letter, with the traceback of the last attempt, which has a field of its own. A
-- message that is being moved has not failed, and no such field.
local function history_of(values)
  local history = values.deadstory
  if not history or not values.deadtraceback or string.sub(history, -1) ~= '}' then
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
