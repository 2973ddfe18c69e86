-- with numbers
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

-- If the key is not a hash, nothing is counted, and burying and redriving still work.
local function is_hash(groups)
  local kind = redis.call('type', groups).ok
  return kind == 'hash' or kind == 'none'
end

-- Count a dead letter that was just buried.
local function count_dead(groups, dead, group, ms)
  if redis.call('xlen', dead) == 1 then
    -- All earlier dead letters were deleted by hand.
    redis.call('del', groups)
  elseif not is_hash(groups) then
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
  if not is_hash(groups) then
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
