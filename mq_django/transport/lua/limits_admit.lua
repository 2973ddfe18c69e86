-- Decide about deliveries, by their keys, and when they came past `limits_fetch` by the queue's limits, too.
--
-- KEYS and ARGV[1..8]: see parts/limits; without limits of the queue these are not asked
-- then for each delivery: home, entry, key or ''
--
-- Returns for each: 'GO', 'PARK' when its key has no permit, or 'BACK' when the queue has none.

-- with limits
-- with permits
redis.call('hdel', limits, '')
local candidates = (#ARGV - 8) / 3
local free, at_once, words = candidates, candidates, nil
if most > 0 then
  at_once = most - (pending_now() - candidates)
end
if rate > 0 then
  free, words = window(redis.call('hget', limits, 'r'), rate, width, now)
end

local reply, went = {}, 0
for at = 9, #ARGV, 3 do
  local home, entry, key = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local limited = key ~= '' and key_rate + key_most > 0 and not redis.call('zscore', permits, home .. '-' .. entry)
  local take = nil
  -- Behind those that were parked before it: their order is kept.
  if limited and not redis.call('zscore', turns, key) then
    take = permit_of(key)
  end
  if limited and not take then
    reply[#reply + 1] = 'PARK'
  elseif went >= free or went >= at_once then
    reply[#reply + 1] = 'BACK'
  else
    reply[#reply + 1] = 'GO'
    went = went + 1
    if take then
      take(home, entry)
    end
  end
end
if words and went > 0 then
  redis.call('hset', limits, 'r', granted(words, went, rate, width, now))
end
if most > 0 and went < candidates then
  redis.call('hset', limits, 'w', '1')
end
forget_past(10 + 2 * candidates)
return reply
