-- Override the times of a schedule of code or settings from its next tick on, or let those count again.
--
-- KEYS[1]  schedules   {queue}:schedules   HASH   'override:' name -> JSON; 'overridden:' name -> ms and who; 'last:' name
--                                                 -> ms
-- ARGV[1]  name
-- ARGV[2]  override    the times; '': the times of the code count again
-- ARGV[3]  before      what overrides them until now, or ''
-- ARGV[4]  last        ms up to which its ticks have fired, as it was read, or ''
-- ARGV[5]  due         ms of its next tick after that, or ''
-- ARGV[6]  who
-- ARGV[7]  wake        channel
--
-- Returns 'DONE'; or, without a write: 'CHANGED' when it is not as it was read, or 'DUE' when the next tick has to fire
-- before: it is one of the times until now.

-- with types
-- with clock
-- with numbers
local schedules, name, override = KEYS[1], ARGV[1], ARGV[2]
check_types({ [schedules] = 'hash' })

local last = number_of(redis.call('hget', schedules, 'last:' .. name))
-- A time after the year 9999 was not written by a schedule.
last = last <= 253402300799999 and last or 0
if (redis.call('hget', schedules, 'override:' .. name) or '') ~= ARGV[3] or last ~= (tonumber(ARGV[4]) or 0) then
  return 'CHANGED'
end
local now = now_ms()
if ARGV[5] ~= '' and tonumber(ARGV[5]) <= now then
  return 'DUE'
end
local at = string.format('%.0f', now)
if override == '' then
  redis.call('hdel', schedules, 'override:' .. name, 'overridden:' .. name)
else
  redis.call('hset', schedules, 'override:' .. name, override, 'overridden:' .. name, at .. ' ' .. ARGV[6])
end
-- Ticks of the new times before now never fire.
redis.call('hset', schedules, 'last:' .. name, at)
redis.call('publish', ARGV[7], 'schedules')
return 'DONE'
