-- Remove the oldest entries beyond the retention from a log, but none that is pending in a group.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  and on   {topic}:g:<group>:control   HASH     lost: entries trimmed before the group read them
-- ARGV[1]  age      ms that an entry is kept; 0: no limit
-- ARGV[2]  count    entries that are kept; 0: no limit
-- ARGV[3]  bytes    of memory that the log may use; 0: no limit
-- ARGV[4]  limit    entries to check, at most 500
-- ARGV[5]  and on   the groups of KEYS[2] and on
--
-- Returns {trimmed, 1 if there is more to trim, 1 if a pending entry prevented more, then for each group that lost
-- unread entries: its name, and how many}.

-- with stream_state
local log, limit = KEYS[1], tonumber(ARGV[4])
local length = redis.call('exists', log) == 1 and redis.call('xlen', log) or 0

local surplus = ARGV[2] ~= '0' and length - ARGV[2] or 0
if ARGV[3] ~= '0' and length > 0 then
  local share = 1 - ARGV[3] / redis.call('memory', 'usage', log)
  surplus = math.max(surplus, math.ceil(length * share))
end
-- with clock
-- with lists
-- with numbers
local too_old = ARGV[1] ~= '0' and now_ms() - ARGV[1] or 0

local read, pending = {}, { math.huge, 0 }
for _, group in ipairs(groups_of(log)) do
  read[group.name] = entry_id(group['last-delivered-id'])
  if group.pending > 0 then
    local oldest = entry_id(redis.call('xpending', log, group.name)[2])
    pending = is_before(oldest, pending) and oldest or pending
  end
end

local trimmable, final, first_kept, held, bytes, last = {}, nil, nil, 0, 0, '-'
while length > 0 and not first_kept and #trimmable < limit and bytes < 4194304 do
  local found = redis.call('xrange', log, last, '+', 'count', 100)
  for _, entry in ipairs(found) do
    local place = entry_id(entry[1])
    local over = #trimmable < surplus or place[1] < too_old
    if not first_kept and over and is_before(place, pending) then
      trimmable[#trimmable + 1], final = place, entry[1]
      bytes = bytes + #entry[2][#entry[2]]
    elseif not first_kept then
      first_kept, held = entry[1], over and 1 or 0
    end
  end
  last = #found > 0 and '(' .. found[#found][1] or last
  if #found < 100 then
    break
  end
end
if #trimmable == 0 then
  return { 0, 0, held }
end

-- Approximate: after an exact MINID Redis 8.10 may write files that it cannot load.
local trimmed = redis.call('xtrim', log, 'minid', '~', first_kept or final)
local reply = { trimmed, trimmed > 0 and #trimmable >= limit and 1 or 0, held }
for i = 5, #ARGV do
  local lost = 0
  for place = 1, trimmed do
    lost = lost + (read[ARGV[i]] and is_before(read[ARGV[i]], trimmable[place]) and 1 or 0)
  end
  if lost > 0 then
    increment(KEYS[i - 3], 'lost', lost)
    add_all(reply, ARGV[i], lost)
  end
end
return reply
