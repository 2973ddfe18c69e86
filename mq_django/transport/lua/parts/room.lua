-- with numbers
-- What the queue's own limits leave. The script has named what stands in parts/limits, and has parts/windows.

-- Return how many of `count` they let through, its log of grants if it has a rate, and how many more may be handled at
-- once if that is limited; or nil and the reply that says why there are none. `turn` is when the consumer was told to
-- come again, or 0.
local function room(count, turn)
  local at_once = nil
  if most > 0 then
    at_once = most - pending_now()
    if at_once <= 0 then
      redis.call('hset', limits, 'w', '1')
      return nil, { 'FULL' }
    end
    count = math.min(count, at_once)
  end
  if rate == 0 then
    return count, nil, at_once
  end
  local free, words, first = window(redis.call('hget', limits, 'r'), rate, width, now)
  if free > 0 then
    return math.min(count, free), words, at_once
  end
  if turn <= now then
    turn = turn_after(number_of(redis.call('hget', limits, 't')), words, first, rate, width, now)
    redis.call('hset', limits, 't', string.format('%.0f', turn))
  end
  return nil, { 'LATER', math.max(1, turn - now), string.format('%.0f', turn) }
end
