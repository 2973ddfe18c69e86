-- Pause a schedule: its ticks pass, and publish no message. Or resume it from its next tick on: ticks in the pause never
-- fire.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   'paused:' name -> ms and who; 'last:' name
-- ARGV[1]  name
-- ARGV[2]  pauses      '1', or '0' to resume it
-- ARGV[3]  who
-- ARGV[4]  field       that a schedule has to be paused; '' for one of code or settings
--
-- Returns 'CHANGED'; or, without a write: 'SAME', or 'MISSING'.

-- with clock
local field, now = 'paused:' .. ARGV[1], string.format('%.0f', now_ms())
if ARGV[2] == '1' then
  if ARGV[4] ~= '' and redis.call('hexists', KEYS[1], ARGV[4]) == 0 then
    return 'MISSING'
  end
  return redis.call('hsetnx', KEYS[1], field, now .. ' ' .. ARGV[3]) == 1 and 'CHANGED' or 'SAME'
elseif redis.call('hdel', KEYS[1], field) == 0 then
  return 'SAME'
end
redis.call('hset', KEYS[1], 'last:' .. ARGV[1], now)
return 'CHANGED'
