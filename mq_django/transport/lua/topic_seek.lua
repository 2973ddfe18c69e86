-- Move a group to another position in its topic's log.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  control  {topic}:g:<group>:control   HASH    log-generation, lost
-- ARGV[1]  group
-- ARGV[2]  after    the group continues after this entry: '0' for the beginning, '$' for the end
-- ARGV[3]  up to    number of entries up to this id, or '' if unknown
-- ARGV[4]  first    the first entry of the log when they were counted
--
-- Returns {'MOVED', the entry after which the group continues}, or 'MISSING' when the group does not exist.

local log, control = unpack(KEYS)
-- with types
-- with stream_state
check_types({ [control] = 'hash' })
local is_there = false
for _, group in ipairs(groups_of(log)) do
  is_there = is_there or group.name == ARGV[1]
end
if not is_there then
  return 'MISSING'
end

local info = pairs_of(redis.call('xinfo', 'stream', log))
local after = ARGV[2] == '$' and info['last-generated-id'] or ARGV[2]
-- An invalid position fails here, before the group is removed.
redis.call('xrange', log, after, after, 'count', 1)
-- The group is recreated instead of moved by XGROUP SETID: that drops its pending list in one step, and Redis checks
-- blocked readers again, which it does not do after SETID.
redis.call('xgroup', 'destroy', log, ARGV[1])
local entries_read = {}
if (ARGV[3] or '') ~= '' and info['first-entry'] and info['first-entry'][1] == ARGV[4] then
  -- With ENTRIESREAD Redis can report the lag itself.
  entries_read = { 'entriesread', info['entries-added'] - info.length + ARGV[3] }
end
redis.call('xgroup', 'create', log, ARGV[1], after, unpack(entries_read))
-- with clock
redis.call('hset', control, 'log-generation', next_generation(control, now_ms()))
-- Where the group continues was decided anew.
redis.call('hdel', control, 'lost')
return { 'MOVED', after }
