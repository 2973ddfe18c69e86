-- Make messages ready that are not held any more, and let probes through: see parts/holds.
--
-- KEYS[1]   holds      {queue}:holds      HASH
-- KEYS[2]   parked     {queue}:parked     ZSET    score: of the hold
-- KEYS[3]   waiting    {queue}:waiting    HASH    member -> body
-- KEYS[4]   unique     {queue}:unique     HASH    unique member -> id, and id -> member
-- KEYS[5]   ready      {queue}:ready      STREAM
-- KEYS[6]   front      {queue}:front      STREAM
-- KEYS[7]   priority   {queue}:priority   ZSET    score: see parts/ranks
-- KEYS[8]   control    {queue}:control    HASH
-- KEYS[9]   consumers  {queue}:consumers  HASH
-- KEYS[10]  permits    {queue}:permits    ZSET    see parts/tokens
-- ARGV[1]  limit      messages, at most 500
-- ARGV[2]  group
-- ARGV[3]  wake       channel
--
-- Returns {moved, microseconds until the next look or -1}.

-- with types
-- with clock
-- with ready
-- with move_to_ready
-- with line_heads
-- with holds
local holds, parked, waiting, unique, ready, front, priority, control, consumers, permits = unpack(KEYS)
local group, wake = ARGV[2], ARGV[3]
-- Each probe is another one of so many first messages, because one of them may always fail.
local MOST_SKIPPED = 1000
-- Milliseconds after which all consumers know that a hold has ended, nearly always.
local LATE = 500

check_types({ [holds] = 'hash', [parked] = 'zset', [waiting] = 'hash', [unique] = 'hash', [ready] = 'stream' })
check_types({ [front] = 'stream', [priority] = 'zset', [control] = 'hash', [consumers] = 'hash', [permits] = 'zset' })

local now, left, moved, first, changed = now_ms(), tonumber(ARGV[1]), 0, nil, false
-- Then nobody would take the probes, and all of them at once later.
local is_paused = redis.call('hget', control, 'paused') == '1'
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', control, '')

local function look_at(ms)
  first = math.min(first or ms, ms)
end

local function save(subject, hold)
  redis.call('hset', holds, subject, cjson.encode(hold))
end

local function move(members, make_ready)
  local count, failed = make_all_ready(parked, members, waiting, unique, make_ready)
  if failed and moved + count == 0 then
    error(failed)
  end
  moved, left = moved + count, left - count
  return count
end

-- Let up to `count` messages of a hold through, before all that is ready, and return how many.
local function let_through(subject, hold, count)
  local score = hold.score
  local there = redis.call('zcount', parked, score, score)
  local skipped = count == 1 and there > 0 and math.floor(now / 10) % math.min(there, MOST_SKIPPED) or 0
  local members = redis.call('zrangebyscore', parked, score, score, 'limit', skipped, math.min(count, left))
  return #members > 0
      and move(members, function(id, body, member)
        local fields = id and { 'id', id, 'message', body, 'mqprobe', subject } or { 'message', body, 'mqprobe', subject }
        local target, entry = add_first(ready, front, group, fields)
        if not target then
          return entry
        end
        pass_token(permits, 'm-' .. member, token_of(target, entry))
      end)
    or 0
end

local ways = {}

-- Until its time is over.
function ways.held(subject, hold)
  local ends = number_in(hold, 'until')
  if ends > now then
    look_at(ends)
  elseif ends > 0 then
    hold.state, changed = 'ended', true
    save(subject, hold)
    ways.ended(subject, hold)
  end
end

function ways.open(subject, hold)
  if is_paused then
    return
  end
  local due = number_in(hold, 'next')
  if due <= now and let_through(subject, hold, 1) > 0 then
    due = next_probe(hold, now)
    hold.next = due
    save(subject, hold)
  end
  -- Without a message to let through, the first that comes is found by a later poll.
  if due > now then
    look_at(due)
  end
end

function ways.ramp(subject, hold)
  if is_paused then
    return
  end
  local due, free = number_in(hold, 'next'), number_in(hold, 'free')
  local is_late = due <= now
  if is_late then
    -- What was let through has not ended: its consumer may be gone.
    due, free = next_probe(hold, now), number_in(hold, 'level')
  end
  local released = free > 0 and let_through(subject, hold, free) or 0
  if is_late and released == 0 and left > 0 then
    -- Nothing waits, either.
    hold.state, changed = 'ended', true
    save(subject, hold)
    return ways.ended(subject, hold)
  elseif is_late or released > 0 then
    hold.next, hold.free = due, free - released
    save(subject, hold)
  end
  look_at(released > 0 and hold.free > 0 and now or due)
end

-- Make the messages with a score ready, and return whether there were any.
local function free(score)
  local members = redis.call('zrangebyscore', parked, score, score, 'limit', 0, left)
  if left > 0 and #members == 0 then
    return false
  end
  local make_ready = make_ready_with(ready, priority, waiting, control, group)
  move(members, with_heads(make_ready, permits, ready, front, group))
  look_at(now)
  return true
end

function ways.ended(subject, hold)
  if not free(hold.score) then
    redis.call('hdel', holds, subject)
    look_at(now + LATE)
  end
end

-- Free what has no hold: parked by a consumer that did not know yet that it had ended, or another program has removed it.
local function free_others(known)
  local above = '-inf'
  while left > 0 do
    local found = redis.call('zrangebyscore', parked, above, '(0', 'withscores', 'limit', 0, 1)
    if not found[1] then
      return
    elseif not known[found[2]] then
      free(found[2])
    end
    above = '(' .. found[2]
  end
end

local flat, known = redis.call('hgetall', holds), {}
for at = 1, #flat, 2 do
  local hold = hold_of(flat[at + 1])
  if hold and ways[hold.state] then
    known[hold.score] = true
    ways[hold.state](flat[at], hold)
  else
    redis.call('hdel', holds, flat[at])
  end
end
free_others(known)
if changed then
  tell_of_holds(consumers, wake)
end
return { moved, first and (first - now) * 1000 or -1 }
