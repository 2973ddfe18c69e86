-- Set or clear the lag alarm of a group.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  control  {topic}:g:<group>:control   HASH    alarm: percent of the retention
-- ARGV[1]  group
-- ARGV[2]  percent  of the retention, or '' to clear the alarm
--
-- Returns 'RAISED', 'CLEARED' or 'SAME'; 'MISSING' when the group does not exist: nothing is written.

local is_there = false
for _, group in ipairs(redis.call('exists', KEYS[1]) == 1 and redis.call('xinfo', 'groups', KEYS[1]) or {}) do
  is_there = is_there or group[2] == ARGV[1]
end
if not is_there then
  return 'MISSING'
end
local was = redis.call('hget', KEYS[2], 'alarm')
if ARGV[2] == '' then
  redis.call('hdel', KEYS[2], 'alarm')
  return was and 'CLEARED' or 'SAME'
end
redis.call('hset', KEYS[2], 'alarm', ARGV[2])
return was and 'SAME' or 'RAISED'
