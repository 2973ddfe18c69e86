-- Set or clear the lag alarm of a group.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  control  {topic}:g:<group>:control   HASH    alarm: percent of the retention
-- ARGV[1]  group
-- ARGV[2]  percent  of the retention, or '' to clear the alarm
--
-- Returns 'RAISED', 'CLEARED' or 'SAME'; 'MISSING' when the group does not exist: nothing is written.

-- Not XINFO GROUPS, which takes the longer the more groups there are: this is called for each of them.
local pending = redis.pcall('xpending', KEYS[1], ARGV[1], '-', '+', 1)
if pending.err then
  return string.match(pending.err, '^NOGROUP') and 'MISSING' or pending
end
local was = redis.call('hget', KEYS[2], 'alarm')
if ARGV[2] == '' then
  redis.call('hdel', KEYS[2], 'alarm')
  return was and 'CLEARED' or 'SAME'
end
redis.call('hset', KEYS[2], 'alarm', ARGV[2])
return was and 'SAME' or 'RAISED'
