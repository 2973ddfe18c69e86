-- with numbers
-- Dead letters are counted by the class of their error and the name of their message, by the script that buries or moves
-- them. A field is the two with a '|' between, a value how many and when one was buried last, in ms since 1970. Beyond
-- 1000 groups they are counted together, in the field '*'.
local function group_of(fields, from, to)
  local error, name = '', ''
  for at = from, to, 2 do
    if fields[at] == 'deaderror' then
      error = fields[at + 1]
    elseif fields[at] == 'type' then
      name = fields[at + 1]
    end
  end
  local class, rest = string.match(error, '^([%a_][%w_.]*)(.?)')
  local is_class = class and #class <= 200 and (rest == '' or rest == ':')
  return (is_class and class or '') .. '|' .. string.sub(name, 1, 1020)
end

-- A hash of groups that is none counts nothing, and keeps no message from being buried or redriven.
local function is_hash(groups)
  local kind = redis.call('type', groups).ok
  return kind == 'hash' or kind == 'none'
end

-- Count one that was buried just now.
local function count_dead(groups, dead, group, ms)
  if redis.call('xlen', dead) == 1 then
    -- Those before it were deleted by hand.
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

local function uncount_dead(groups, group, gone)
  if not is_hash(groups) then
    return
  end
  local known = redis.call('hget', groups, group)
  if not known then
    group = '*'
    known = redis.call('hget', groups, group)
  end
  local count, rest = string.match(known or '', '^(%d+)(.*)$')
  if number_of(count) > gone then
    redis.call('hset', groups, group, string.format('%.0f', count - gone) .. rest)
  else
    redis.call('hdel', groups, group)
  end
end
