-- Decide which deliveries may run: by the limits of their keys and, if they did not come from `limits_fetch`, of the
-- queue.
--
-- KEYS and ARGV[1..8]: see parts/limits; if the limits of the queue are 0, only those of keys are checked
-- then for each delivery: stream, entry, key or ''
--
-- Returns for each: 'GO', 'PARK' when its key has no permit, or 'BACK' when the queue has none.

-- with limits
-- with permits
redis.call('hdel', limits, '')
local candidates = (#ARGV - 8) / 3
local free, concurrent, grants = candidates, candidates, nil
if most > 0 then
  concurrent = most - (pending_now() - candidates)
end
if rate > 0 then
  free, grants = window(redis.call('hget', limits, 'r'), rate, width, now)
end

local reply, admitted = {}, 0
for at = 9, #ARGV, 3 do
  local stream, entry, key = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local limited = key ~= '' and key_rate + key_most > 0 and not redis.call('zscore', permits, stream .. '-' .. entry)
  local take = nil
  -- A message queues behind the parked ones of its key, so that their order is kept.
  if limited and not redis.call('zscore', next_checks, key) then
    take = permit_of(key)
  end
  if limited and not take then
    reply[#reply + 1] = 'PARK'
  elseif admitted >= free or admitted >= concurrent then
    reply[#reply + 1] = 'BACK'
  else
    reply[#reply + 1] = 'GO'
    admitted = admitted + 1
    if take then
      take(stream, entry)
    end
  end
end
if grants and admitted > 0 then
  redis.call('hset', limits, 'r', granted(grants, admitted, rate, width, now))
end
if most > 0 and admitted < candidates then
  redis.call('hset', limits, 'w', '1')
end
forget_past(10 + 2 * candidates)
return reply
