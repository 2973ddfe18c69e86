-- Create or change a schedule at run time, unless somebody else has changed it since it was read.
--
-- KEYS[1]  schedules    {queue}:runtime-schedules   HASH   'definition:' name -> JSON; 'created:', 'changed:' and
--                                                          'paused:' name -> ms and who; 'last:', 'fired:' name -> ms;
--                                                          'skips:' name -> lines: see parts/skips; 'recent:' name:
--                                                          see schedules_fire
-- ARGV[1]  name
-- ARGV[2]  definition
-- ARGV[3]  before       the definition that it replaces; '' to create the schedule
-- ARGV[4]  who
-- ARGV[5]  anew         '1': earlier ticks of the definition never fire, and none is skipped. That is always so for a new
--                       schedule
-- ARGV[6]  paused       '1' to create it paused
-- ARGV[7]  most         the most fields of the hash when a schedule is created
-- ARGV[8]  wake         channel
--
-- Returns 'DEFINED'; or, without a write: 'EXISTS' or 'FULL' when it is to be created, 'MISSING' when it was deleted,
-- 'CHANGED' when it has another definition than `before`.

-- with types
-- with clock
local schedules, name, before = KEYS[1], ARGV[1], ARGV[3]
check_types({ [schedules] = 'hash' })

local found = redis.call('hget', schedules, 'definition:' .. name)
if before == '' then
  if found then
    return 'EXISTS'
  elseif redis.call('hlen', schedules) >= tonumber(ARGV[7]) then
    return 'FULL'
  end
elseif not found then
  return 'MISSING'
elseif found ~= before then
  return 'CHANGED'
end

local now = string.format('%.0f', now_ms())
local stamp = now .. ' ' .. ARGV[4]
redis.call('hset', schedules, 'definition:' .. name, ARGV[2], 'changed:' .. name, stamp)
if before == '' then
  -- What others have left of an earlier schedule of this name.
  redis.call('hdel', schedules, 'fired:' .. name, 'recent:' .. name, 'paused:' .. name)
  redis.call('hset', schedules, 'created:' .. name, stamp)
  if ARGV[6] == '1' then
    redis.call('hset', schedules, 'paused:' .. name, stamp)
  end
end
if before == '' or ARGV[5] == '1' then
  redis.call('hset', schedules, 'last:' .. name, now)
  redis.call('hdel', schedules, 'skips:' .. name)
end
redis.call('publish', ARGV[8], 'schedules')
return 'DEFINED'
