-- Give deliveries back uncharged, before everything that is ready.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- KEYS[2]  ready      {queue}:ready              STREAM
-- KEYS[3]  urgent     {queue}:urgent             STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the ids of the entries
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

local home, ready, urgent = KEYS[1], KEYS[2], KEYS[3]
local found = redis.call('type', urgent).ok
if found ~= 'none' and found ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. urgent .. ' holds a ' .. found)
end

-- A blocked reader waits for `ready` only. It is blocked when nothing undelivered stands there, and then that is the
-- place for what goes first; else `urgent` is, which every fetch reads before `ready`.
local target = ready
for _, group in ipairs(redis.call('xinfo', 'groups', ready)) do
  local last
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' then
      last = group[i + 1]
    end
  end
  if #redis.call('xrange', ready, '(' .. last, '+', 'count', 1) > 0 then
    target = urgent
  end
end
if target == urgent and found == 'none' then
  redis.call('xgroup', 'create', urgent, ARGV[1], '0', 'mkstream')
end

-- What an entry leaves to its own id, the message's id and time, it must bring along to a new one.
local function identified(fields, entry)
  local there = {}
  for i = 1, #fields, 2 do
    there[fields[i]] = true
  end
  if not there.message and not there.id then
    table.insert(fields, 1, 'id')
    table.insert(fields, 2, entry)
  end
  if not there.message and not there.time then
    fields[#fields + 1] = 'time'
    fields[#fields + 1] = string.match(entry, '^%d+')
  end
  return fields
end

local stale = {}
for i = 3, #ARGV do
  local entry = ARGV[i]
  if #redis.call('xpending', home, ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    local read = redis.call('xrange', home, entry, entry)[1]
    redis.call('xack', home, ARGV[1], entry)
    redis.call('xdel', home, entry)
    if read then
      redis.call('xadd', target, '*', unpack(identified(read[2], entry)))
    end
  else
    stale[#stale + 1] = entry
  end
end
return stale
