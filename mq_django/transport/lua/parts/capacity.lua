-- with numbers
-- The queue's own limits. Uses the names of parts/line_keys and parts/windows.

-- Return how many of `count` deliveries the limits allow, the grant log if there is a rate, and how many more
-- deliveries may run if concurrency is limited; or nil and the script's reply. `turn` is when the last
-- reply told the consumer to ask again, or 0.
local function capacity(count, turn)
  local concurrent = nil
  if most > 0 then
    concurrent = most - pending_now()
    if concurrent <= 0 then
      redis.call('hset', limits, 'w', string.format('%.0f', ms + WAIT_MS))
      return nil, { 'FULL' }
    end
    count = math.min(count, concurrent)
  end
  if rate == 0 then
    return count, nil, concurrent
  end
  local free, words, first = window(redis.call('hget', limits, 'r'), rate, width, now)
  if free > 0 then
    return math.min(count, free), words, concurrent
  end
  if turn <= now then
    turn = next_turn(number_of(redis.call('hget', limits, 't')), words, first, rate, width, now)
    redis.call('hset', limits, 't', string.format('%.0f', turn))
  end
  return nil, { 'LATER', math.max(1, turn - now), string.format('%.0f', turn) }
end
