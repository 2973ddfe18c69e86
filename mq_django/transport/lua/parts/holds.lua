-- with numbers
-- Holds, in `holds`: a hash from the subject, which is 'name:' and a name, 'key:' and a key, or 'queue:', to a JSON object:
--   state   'held'    until somebody ends it, or until a time
--           'open'    by a breaker: one message is let through as a probe from time to time
--           'ramp'    a probe was handled: 2, 4, 8 … messages are let through at once, until one fails, or it ends
--           'ended'   its messages are being made ready, and then it is removed
--   score   of its messages in `parked`: below 0, where no line is
--   until   of 'held': ms since 1970 at which it ends; missing: when somebody ends it
--   probe   of the others: ms between two probes; next: when the next one is, ms since 1970
--   level   of 'ramp': how many are let through at once; free: how many of these still are; good: how many were handled
-- and for people who, reason, since. Consumers read them, and settle what is held with `set_aside`, to `parked`. What is let
-- through has the subject in the field `mqprobe` of its entry.

-- Return a hold, or nil if it is none: another program may have written anything.
local function hold_of(text)
  local is_done, found = pcall(cjson.decode, text or '')
  local is_hold = is_done and type(found) == 'table' and type(found.state) == 'string' and type(found.score) == 'string'
  return is_hold and string.match(found.score, '^%-%d+$') and found or nil
end

-- Return a number of a hold, or 0.
local function number_in(hold, name)
  local value = hold[name]
  return type(value) == 'number' and value >= 0 and value < 9007199254740992 and value or 0
end

-- Return when the next probe is, up to a tenth earlier or later: queues that wait for the same partner ask it in turn.
local function next_probe(hold, now)
  return math.floor(now + number_in(hold, 'probe') * (0.9 + now % 100 / 500))
end

-- Have supervisors look at the holds now, and consumers read them. The heartbeat returns the field, too.
local function tell_of_holds(consumers, wake)
  if redis.call('exists', consumers) == 1 then
    increment(consumers, 'holds:changed', 1)
  end
  redis.call('publish', wake, 'holds')
end
