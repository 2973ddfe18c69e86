-- Count what was handled and what has failed of the subjects of breakers, and open or close these.
--
-- A breaker opens when a number of the latest results have failed in a time. While it is open, only probes count: see
-- parts/holds. Nothing is stored about a subject that has not failed for that time. One that would open beyond MOST_HOLDS stays
-- closed: its failures are charged as others.
--
-- Consumers report what they have handled up to a second late, and so after failures that came later. A failure that only these
-- push out of the latest results does not count, but the attempt that it cost is given back if the breaker opens.
--
-- KEYS[1]  holds      {queue}:holds       HASH   see parts/holds
-- KEYS[2]  consumers  {queue}:consumers   HASH
-- KEYS[3]  parked     {queue}:parked      ZSET   score: of the hold
-- then for each subject {queue}:breaker:<subject>  HASH  n: results so far; f: of each failure its number and its time
-- ARGV[1]  wake       channel
-- then for each subject: the subject, its score, results that count, how many of them have to fail, within how many ms, ms
-- between probes, how many were handled, how many have failed, how many of each were probes, how many other probes have ended
-- without a run, and what the last error was
--
-- Returns for each subject {the state of its hold before, and now, or '' without one; when the first failure was because of
-- which it is open, ms since 1970, and how many there were}.

-- with types
-- with clock
-- with numbers
-- with holds
local holds, consumers, parked, wake = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
-- A ramp ends at this level.
local LAST_LEVEL = 64
-- Within this time, in ms, reports of what was handled before a failure may come after it: a second, and the way here.
local LATE = 2000
-- The most holds of a queue with which a further breaker opens, because each look at them reads all.
local MOST_HOLDS = 400
check_types({ [holds] = 'hash', [consumers] = 'hash', [parked] = 'zset' })
for at = 4, #KEYS do
  check_types({ [KEYS[at]] = 'hash' })
end
local now, has_changed = now_ms(), false
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: what has failed is parked.
redis.call('hdel', holds, '')

local function save(subject, hold)
  redis.call('hset', holds, subject, cjson.encode(hold))
  has_changed = true
end

-- A probe was handled, or failed, or another message, which was fetched before it opened: that changes nothing.
local function probed(subject, hold, handled, failed)
  if failed > 0 and hold.state == 'ramp' then
    hold.state, hold.next, hold.level, hold.free, hold.good = 'open', next_probe(hold, now), nil, nil, nil
    save(subject, hold)
  elseif failed == 0 and handled > 0 then
    local level, good = number_in(hold, 'level'), number_in(hold, 'good') + handled
    if hold.state == 'open' then
      level, good = 1, 1
    end
    local is_last = level - number_in(hold, 'free') <= good and redis.call('zcount', parked, hold.score, hold.score) == 0
    if is_last or level <= good and level >= LAST_LEVEL then
      hold.state = 'ended'
      save(subject, hold)
    elseif good < level then
      hold.good = good
      redis.call('hset', holds, subject, cjson.encode(hold))
    else
      hold.state, hold.level, hold.free, hold.good, hold.next = 'ramp', 2 * level, 2 * level, 0, next_probe(hold, now)
      save(subject, hold)
    end
  end
end

-- Probes ended without a run, as they had expired: others are let through in their place, and at once.
local function ended_unrun(subject, hold, count)
  if hold.state == 'open' then
    hold.next = now
  else
    hold.free = math.min(number_in(hold, 'level'), number_in(hold, 'free') + count)
  end
  save(subject, hold)
end

-- Return the failures that count, after one that was pushed out lately, as text; how many count; and the time of the first.
local function failures_of(key, total, failed, of, within)
  local kept, pushed_out, first = {}, 0, nil
  for number, ms in string.gmatch(short(redis.call('hget', key, 'f')), '(%d+):(%d+)') do
    local counts = tonumber(number) > total - of and tonumber(ms) > now - within
    local is_late = not counts and not first and tonumber(ms) > now - LATE
    if counts or is_late then
      kept[#kept + 1] = number .. ':' .. ms
      first = first or tonumber(ms)
      pushed_out = pushed_out + (is_late and 1 or 0)
    end
  end
  for number = total - math.min(failed, of) + 1, total do
    kept[#kept + 1] = string.format('%.0f:%.0f', number, now)
  end
  return table.concat(kept, ' '), #kept - pushed_out, first or now
end

-- Count the results of a subject that is not held. Return the hold if its breaker opens.
local function counted(key, score, of, needed, within, probe, handled, failed, error)
  if failed == 0 then
    if redis.call('exists', key) == 1 then
      increment(key, 'n', handled)
    end
    return nil
  end
  local total = increment(key, 'n', handled + failed)
  local text, bad, first = failures_of(key, total, failed, of, within)
  if bad >= needed and redis.call('hlen', holds) < MOST_HOLDS then
    redis.call('del', key)
    local hold = { state = 'open', score = score, since = now, first = first, probe = probe, failed = bad, of = of }
    hold.error, hold.next = error, now
    hold.next = next_probe(hold, now)
    return hold
  end
  redis.call('hset', key, 'f', text)
  redis.call('pexpire', key, within)
end

local reply = {}
for at = 4, #KEYS do
  local from = 2 + 12 * (at - 4)
  local subject, score, error, numbers = ARGV[from], ARGV[from + 1], ARGV[from + 11], {}
  for i = 2, 10 do
    numbers[i - 1] = tonumber(ARGV[from + i])
  end
  local of, needed, within, probe, handled, failed, probes, failed_probes, unrun = unpack(numbers)
  local hold = hold_of(redis.call('hget', holds, subject))
  local before = hold and hold.state or ''
  if before == 'open' or before == 'ramp' then
    probed(subject, hold, probes, failed_probes)
    if unrun > 0 and hold.state ~= 'ended' then
      ended_unrun(subject, hold, unrun)
    end
  elseif before ~= 'held' then
    local opened = counted(KEYS[at], score, of, needed, within, probe, handled, failed, error)
    if opened then
      hold = opened
      save(subject, hold)
    end
  end
  reply[#reply + 1] = { before, hold and hold.state or '', hold and number_in(hold, 'first') or 0, hold and number_in(hold, 'failed') or 0 }
end
if has_changed then
  tell_of_holds(consumers, wake)
end
return reply
