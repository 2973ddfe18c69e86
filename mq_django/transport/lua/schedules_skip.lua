-- Skip one tick of a schedule: it will pass, and publish no message. Ticks that have passed are forgotten.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   'skips:' name -> lines: see parts/skips
-- ARGV[1]  name
-- ARGV[2]  tick        ms since 1970
-- ARGV[3]  who
-- ARGV[4]  definition  of which it is a tick; '' for a schedule of code or settings
-- ARGV[5]  most        the most ticks that the schedule may skip
--
-- Returns 'SKIPPED'; or, without a write: 'WAS_SKIPPED', 'PASSED', 'FULL', or 'CHANGED' when it was changed or deleted.

-- with types
-- with clock
-- with skips
local schedules, name, tick, definition = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[4]
check_types({ [schedules] = 'hash' })

local now = now_ms()
if definition ~= '' and redis.call('hget', schedules, 'definition:' .. name) ~= definition then
  return 'CHANGED'
elseif tick <= now then
  return 'PASSED'
end
local skips, is_skipped = skips_of(schedules, name, now, tick)
if is_skipped then
  return 'WAS_SKIPPED'
elseif #skips >= tonumber(ARGV[5]) then
  return 'FULL'
end
skips[#skips + 1] = string.format('%.0f %.0f ', tick, now) .. ARGV[3]
write_skips(schedules, name, skips)
return 'SKIPPED'
