-- Delete a schedule that was created at run time. It never fires again, also where it is still known.
--
-- KEYS[1]  schedules   {queue}:runtime-schedules   HASH   see schedules_define
-- ARGV[1]  name
-- ARGV[2]  wake        channel
--
-- Returns 'DELETED', or 'MISSING' if it has no definition; what others have left of it is deleted in both cases.

local name = ARGV[1]
local found = redis.call('hdel', KEYS[1], 'definition:' .. name)
for _, kind in ipairs({ 'created:', 'changed:', 'paused:', 'last:', 'fired:', 'recent:', 'skips:' }) do
  redis.call('hdel', KEYS[1], kind .. name)
end
redis.call('publish', ARGV[2], 'schedules')
return found == 1 and 'DELETED' or 'MISSING'
