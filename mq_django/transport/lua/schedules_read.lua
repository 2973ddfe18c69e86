-- Read the time up to which the ticks of each schedule have fired. A new schedule starts now: its past ticks never
-- fire.
--
-- KEYS[1]  schedules   {queue}:schedules   HASH   'last:' name -> ms, 'fired:' name -> ms, 'paused:' name
-- ARGV     names
--
-- Returns {now in ms, then for each name: ms since 1970}.

-- with clock
local now = now_ms()
local reply = { now }
for i, name in ipairs(ARGV) do
  redis.call('hsetnx', KEYS[1], 'last:' .. name, string.format('%.0f', now))
  reply[i + 1] = redis.call('hget', KEYS[1], 'last:' .. name)
end
return reply
