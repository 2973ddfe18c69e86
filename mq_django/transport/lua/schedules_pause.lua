-- Pause a schedule: its ticks pass, and publish no message.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   'paused:' name -> ms and who
-- ARGV[1]  name
-- ARGV[2]  who
-- ARGV[3]  field       that the schedule has; '' for one of code or settings
--
-- Returns 'PAUSED'; or, without a write: 'WAS_PAUSED', 'MISSING'.

-- with clock
if ARGV[3] ~= '' and redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return 'MISSING'
end
local stamp = string.format('%.0f', now_ms()) .. ' ' .. ARGV[2]
return redis.call('hsetnx', KEYS[1], 'paused:' .. ARGV[1], stamp) == 1 and 'PAUSED' or 'WAS_PAUSED'
