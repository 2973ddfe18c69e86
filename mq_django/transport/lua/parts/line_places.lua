-- with clock
-- with numbers
-- Positions in `parked`: members with the same score are in the order in which they came.

-- They have 16 digits, so that they sort as their numbers do, and after a dot the time, ms. Messages that return, because
-- their consumer had no token for them, are before all others.
local RETURNING, ARRIVING = 2251799813685248, 4503599627370496

-- Put the body of a message into `waiting` and the message into `parked`, at the next place after `base`. Return its member.
local function park(at, score, base, id, body)
  local micros, member = now_us(), nil
  repeat
    local place = increment(at.control, 'line-places', 1)
    member = string.format('p:%.0f.%.0f', base + place, math.floor(micros / 1000))
    local is_new = not (place == 1 and redis.call('exists', at.parked) == 1)
      and redis.call('hsetnx', at.waiting, member, body) == 1
    if not is_new then
      -- Another program has reset the count. The time is beyond all that were counted.
      redis.call('hset', at.control, 'line-places', string.format('%.0f', micros / 1000))
    end
  until is_new
  redis.call('hset', at.unique, member, id, id, member)
  redis.call('zadd', at.parked, score, member)
  return member
end
