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

local function count_dead(groups, dead, group, ms)
  -- Somebody deleted them all by hand.
  if redis.call('xlen', dead) == 0 then
    redis.call('del', groups)
  end
  local known = redis.call('hget', groups, group)
  if not known and redis.call('hlen', groups) >= 1000 then
    group = '*'
    known = redis.call('hget', groups, group)
  end
  local count = known and string.match(known, '^%d+') or 0
  redis.call('hset', groups, group, string.format('%d %.0f', count + 1, ms))
end

local function uncount_dead(groups, group, gone)
  local known = redis.call('hget', groups, group)
  if not known then
    group = '*'
    known = redis.call('hget', groups, group)
  end
  local count, rest = string.match(known or '', '^(%d+)(.*)$')
  if count and tonumber(count) > gone then
    redis.call('hset', groups, group, string.format('%d', count - gone) .. rest)
  else
    redis.call('hdel', groups, group)
  end
end
