-- Publish the message of a schedule's tick, once for all callers.
--
-- KEYS[1]  schedules   {queue}:schedules           HASH    'last:' name -> ms, 'fired:' name -> ms, 'paused:' name,
--                                                          'skips:' name -> lines: see parts/skips; 'recent:' name ->
--                                                          lines: ms and id of its latest messages; 'override:' name; or
--                      {queue}:runtime-schedules   HASH    the same, and 'definition:' name instead of the last
-- KEYS[2]  ready     {queue}:ready              STREAM
-- KEYS[3]  priority  {queue}:priority           ZSET    score: see parts/ranks
-- KEYS[4]  waiting   {queue}:waiting            HASH    member -> body
-- KEYS[5]  control   {queue}:control            HASH
-- KEYS[6]  minutes   {queue}:counters:m:<hour>  HASH    counters
-- KEYS[7]  hours     {queue}:counters:h:<day>   HASH    counters
-- KEYS[8]  front     {queue}:front              STREAM
-- ARGV[1]  name
-- ARGV[2]  tick        ms since 1970, or '' to publish now, even if paused
-- ARGV[3]  minute      slot of the counters in `minutes`
-- ARGV[4]  hour        slot of the counters in `hours`
-- ARGV[5]  group
-- ARGV[6..8]           the message's id, name and body
-- ARGV[9]  limit       messages the queue may hold; 0: no limit
-- ARGV[10] expected    the definition of a schedule that was created at run time; what overrides the times of one of
--                      code or settings, or ''
-- ARGV[11] kind        of the field that has it: 'definition:' or 'override:'
-- ARGV[12] earlier     optional: '1' if an earlier tick was missed, too. It fires when this one is skipped
--
-- Returns {word, now in ms}: 'FIRED', 'DONE' (by another caller), 'PAUSED', 'SKIPPED', 'EARLY', 'FULL', or 'CHANGED' when
-- it was changed, overridden or deleted. With 'DONE', 'EARLY', 'FULL' and 'CHANGED' nothing is written, and neither is with 'SKIPPED'
-- if there is an earlier tick.

-- with types
-- with clock
-- with count
-- with numbers
-- with ready
-- with skips
local schedules, ready, priority, waiting, control, minutes, hours, front = unpack(KEYS)
local name, tick, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[9])

check_types({ [schedules] = 'hash', [ready] = 'stream', [priority] = 'zset', [waiting] = 'hash' })
check_types({ [control] = 'hash' })

local now = now_ms()
if (redis.call('hget', schedules, ARGV[11] .. name) or '') ~= ARGV[10] then
  return { 'CHANGED', now }
end
if tick then
  if tick > now then
    return { 'EARLY', now }
  end
  -- A time after the year 9999 was not written by a schedule.
  local last = number_of(redis.call('hget', schedules, 'last:' .. name))
  if last >= tick and last <= 253402300799999 then
    return { 'DONE', now }
  end
end
local paused = tick and redis.call('hexists', schedules, 'paused:' .. name) == 1
local later_skips, is_skipped, has_skips = {}, false, false
if tick then
  later_skips, is_skipped, has_skips = skips_of(schedules, name, now, tick)
end
if is_skipped and not paused and ARGV[12] == '1' then
  return { 'SKIPPED', now }
end
local publishes = not paused and not is_skipped
local depth = publishes and limit > 0 and redis.call('xlen', ready) + redis.call('xlen', front)
if depth and depth + redis.call('hlen', waiting) >= limit then
  return { 'FULL', now }
end
local failed = publishes and make_ready_with(ready, priority, waiting, control, ARGV[5])(ARGV[6], ARGV[8])
if failed then
  return failed
end
if tick then
  -- Now and not the tick's time: of several missed ticks only one fires.
  redis.call('hset', schedules, 'last:' .. name, string.format('%.0f', now))
  if has_skips then
    write_skips(schedules, name, later_skips)
  end
end
if not publishes then
  return { paused and 'PAUSED' or 'SKIPPED', now }
end
local at, recent = string.format('%.0f', now), {}
for entry in string.gmatch(short(redis.call('hget', schedules, 'recent:' .. name)), '[^\n]+') do
  recent[#recent + 1] = entry
end
recent[#recent + 1] = at .. ' ' .. ARGV[6]
recent = table.concat(recent, '\n', math.max(1, #recent - 4))
redis.call('hset', schedules, 'fired:' .. name, at, 'recent:' .. name, recent)
count(minutes, ARGV[3], hours, ARGV[4], 'published', { [ARGV[7]] = 1 })
return { 'FIRED', now }
