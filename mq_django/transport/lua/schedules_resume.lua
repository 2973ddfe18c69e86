-- Resume a paused schedule from its next tick on. The ticks of the pause never fire.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   'last:' name -> ms, 'paused:' name
-- ARGV[1]  name
--
-- Returns 'RESUMED', or 'RUNNING' if it was not paused: nothing is written.

-- with clock
if redis.call('hdel', KEYS[1], 'paused:' .. ARGV[1]) == 0 then
  return 'RUNNING'
end
redis.call('hset', KEYS[1], 'last:' .. ARGV[1], string.format('%.0f', now_ms()))
return 'RESUMED'
