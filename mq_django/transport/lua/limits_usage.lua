-- Read the usage of the limits, and the keys with parked messages. Changes nothing.
--
-- KEYS and ARGV[1..8]: see parts/limits
-- ARGV[9..10]  start, count   of the keys, in the order of their next checks
--
-- Returns {now in ms, deliveries granted in the queue's window, pending deliveries, parked messages, keys with parked
-- messages, then for each of these: key, parked, granted in its window, permits (an upper bound of its running
-- deliveries), next check in ms}.

-- with limits
-- with windows
-- with numbers
local function used(field, most_of, width_of)
  local free = window(redis.call('hget', limits, field), most_of, width_of, now)
  return most_of - free
end

local granted_now = rate > 0 and used('r', rate, width) or 0
local reply = { ms, granted_now, pending_now(), redis.call('zcard', parked), redis.call('zcard', next_checks) }
local found = redis.call('zrange', next_checks, ARGV[9], ARGV[9] + ARGV[10] - 1, 'withscores')
for at = 1, #found, 2 do
  local key, hash = found[at], hash_of(found[at])
  reply[#reply + 1] = key
  reply[#reply + 1] = redis.call('zcount', parked, hash, hash)
  reply[#reply + 1] = key_rate > 0 and used('r:' .. key, key_rate, key_width) or 0
  reply[#reply + 1] = redis.call('zcount', permits, hash, hash)
  reply[#reply + 1] = number_of(found[at + 1])
end
return reply
