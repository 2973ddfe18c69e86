-- Skip one tick of a schedule: it will pass, and publish no message. Or let it fire after all. Ticks up to which the
-- schedule has fired are forgotten. Those after that are not, though they may have passed: no consumer ran then.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   'skips:' name -> lines: see parts/skips;
--                                                                              'last:' name -> ms
-- ARGV[1]  name
-- ARGV[2]  tick        ms since 1970
-- ARGV[3]  most        the most ticks that the schedule may skip; 0: the tick fires
-- ARGV[4]  who
-- ARGV[5]  definition  of which it is a tick to be skipped; '' for a schedule of code or settings
--
-- Returns 'SKIPPED' or 'FIRES'; or, without a write: 'PASSED', 'FULL', 'WAS_SKIPPED', 'MISSING' if it was not to be skipped,
-- or 'CHANGED' when the schedule was changed or deleted.

-- with types
-- with clock
-- with numbers
-- with skips
local schedules, name, tick, most = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
check_types({ [schedules] = 'hash' })

local now = now_ms()
if most > 0 and ARGV[5] ~= '' and redis.call('hget', schedules, 'definition:' .. name) ~= ARGV[5] then
  return 'CHANGED'
end
-- A schedule that has not been seen yet has missed none. A time after now was not written by a schedule.
local last = redis.call('hget', schedules, 'last:' .. name)
last = last and math.min(now, number_of(last)) or now
local skips, is_skipped = skips_of(schedules, name, last, tick)
if most == 0 and not is_skipped then
  return 'MISSING'
elseif tick <= now then
  return 'PASSED'
elseif most > 0 and is_skipped then
  return 'WAS_SKIPPED'
elseif most > 0 and #skips >= most then
  return 'FULL'
end
local lines = {}
for _, entry in ipairs(skips) do
  if tonumber(string.match(entry, '^%d+')) ~= tick then
    lines[#lines + 1] = entry
  end
end
if most > 0 then
  lines[#lines + 1] = string.format('%.0f %.0f ', tick, now) .. ARGV[4]
end
write_skips(schedules, name, lines)
return most > 0 and 'SKIPPED' or 'FIRES'
