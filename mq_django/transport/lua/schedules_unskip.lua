-- Let a tick fire that was to be skipped.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   'skips:' name -> lines: see parts/skips
-- ARGV[1]  name
-- ARGV[2]  tick        ms since 1970
--
-- Returns 'FIRES'; or, without a write: 'PASSED', or 'MISSING' if it was not to be skipped.

-- with types
-- with clock
-- with skips
local schedules, name, tick = KEYS[1], ARGV[1], tonumber(ARGV[2])
check_types({ [schedules] = 'hash' })

local now = now_ms()
local skips, is_skipped = skips_of(schedules, name, now, tick)
if not is_skipped then
  return 'MISSING'
elseif tick <= now then
  return 'PASSED'
end
local others = {}
for _, entry in ipairs(skips) do
  if tonumber(string.match(entry, '^%d+')) ~= tick then
    others[#others + 1] = entry
  end
end
write_skips(schedules, name, others)
return 'FIRES'
