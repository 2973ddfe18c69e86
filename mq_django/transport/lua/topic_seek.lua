-- Move a group to another place of its topic's log.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  control  {topic}:g:<group>:control   HASH    log-generation
-- ARGV[1]  group
-- ARGV[2]  after    the entry after which it goes on: '0' for the beginning, '$' for the end
-- ARGV[3]  up to    how many entries there are up to that one, or '' when that is not known
-- ARGV[4]  first    the first entry of the log when they were counted
--
-- Returns {'MOVED', the entry after which it goes on}, or 'MISSING' when there is no such group.

local log, control = unpack(KEYS)
-- with types
local wrong = wrong_type({ [control] = 'hash' })
if wrong then
  return wrong
end
local groups = redis.call('exists', log) == 1 and redis.call('xinfo', 'groups', log) or {}
local is_there = false
for _, group in ipairs(groups) do
  is_there = is_there or group[2] == ARGV[1]
end
if not is_there then
  return 'MISSING'
end

local flat, info = redis.call('xinfo', 'stream', log), {}
for i = 1, #flat, 2 do
  info[flat[i]] = flat[i + 1]
end
local after = ARGV[2] == '$' and info['last-generated-id'] or ARGV[2]
-- What is no place in a log fails here, while the group is still there.
redis.call('xrange', log, after, after, 'count', 1)
-- Made anew, and not moved: that acks all that was pending in one step, however much it was, and Redis then looks again
-- at the readers that wait, which it does not do for a group whose id was set.
redis.call('xgroup', 'destroy', log, ARGV[1])
local entries_read = {}
if (ARGV[3] or '') ~= '' and info['entries-added'] and info['first-entry'] and info['first-entry'][1] == ARGV[4] then
  -- By what Redis counts as read it tells the lag from then on, and nobody has to count.
  entries_read = { 'entriesread', info['entries-added'] - info.length + ARGV[3] }
end
redis.call('xgroup', 'create', log, ARGV[1], after, unpack(entries_read))
-- with clock
-- with generations
redis.call('hset', control, 'log-generation', next_generation(control, now_ms()))
return { 'MOVED', after }
