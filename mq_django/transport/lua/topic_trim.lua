-- Take the oldest entries that are over the retention out of a log, but nothing that a group has pending.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  and on   {topic}:g:<group>:control   HASH     lost: entries that went before the group read them
-- ARGV[1]  age      ms that an entry is kept, or 0
-- ARGV[2]  count    entries that are kept, or 0
-- ARGV[3]  bytes    of memory that the log may take, or 0
-- ARGV[4]  limit    entries to look at, at most 500
-- ARGV[5]  and on   the groups of KEYS[2] and on
--
-- Returns {trimmed, 1 if there is more to trim, 1 if something pending was in the way, then for each group that lost
-- entries it had not read: its name, and how many}.

local log, limit = KEYS[1], tonumber(ARGV[4])
local length = redis.call('exists', log) == 1 and redis.call('xlen', log) or 0

local function id(text)
  local ms, number = string.match(text, '^(%d+)-(%d+)$')
  return { tonumber(ms), tonumber(number) }
end
local function before(a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end

local surplus = ARGV[2] ~= '0' and length - ARGV[2] or 0
if ARGV[3] ~= '0' and length > 0 then
  local share = 1 - ARGV[3] / redis.call('memory', 'usage', log)
  surplus = math.max(surplus, math.ceil(length * share))
end
-- with clock
-- with counted
local too_old = ARGV[1] ~= '0' and now_ms() - ARGV[1] or 0

local read, pending = {}, { math.huge, 0 }
for _, group in ipairs(length > 0 and redis.call('xinfo', 'groups', log) or {}) do
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' then
      read[group[2]] = id(group[i + 1])
    elseif group[i] == 'pending' and group[i + 1] > 0 then
      local oldest = id(redis.call('xpending', log, group[2])[2])
      pending = before(oldest, pending) and oldest or pending
    end
  end
end

local going, final, cut, held, bytes, last = {}, nil, nil, 0, 0, '-'
while length > 0 and not cut and #going < limit and bytes < 4194304 do
  local found = redis.call('xrange', log, last, '+', 'count', 100)
  for _, entry in ipairs(found) do
    local place = id(entry[1])
    local over = #going < surplus or place[1] < too_old
    if not cut and over and before(place, pending) then
      going[#going + 1], final = place, entry[1]
      bytes = bytes + #entry[2][#entry[2]]
    elseif not cut then
      cut, held = entry[1], over and 1 or 0
    end
  end
  last = #found > 0 and '(' .. found[#found][1] or last
  if #found < 100 then
    break
  end
end
if #going == 0 then
  return { 0, 0, held }
end

-- Approximate, node by node: an exact MINID leaves behind what Redis 8.10 cannot load again.
local trimmed = redis.call('xtrim', log, 'minid', '~', cut or final)
local reply = { trimmed, trimmed > 0 and #going >= limit and 1 or 0, held }
for i = 5, #ARGV do
  local lost = 0
  for place = 1, trimmed do
    lost = lost + (read[ARGV[i]] and before(read[ARGV[i]], going[place]) and 1 or 0)
  end
  if lost > 0 then
    counted(KEYS[i - 3], 'lost', lost)
    reply[#reply + 1] = ARGV[i]
    reply[#reply + 1] = lost
  end
end
return reply
