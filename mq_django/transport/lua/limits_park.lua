-- Park deliveries until their key has a permit. No attempt is counted.
--
-- KEYS and ARGV[1..8]: see parts/limits; ARGV[2], the consumer, must still hold each delivery
-- then for each delivery: stream, entry, the message's id, key, member, body
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with types
-- with limits
-- with permits
local wrong = wrong_type({ [waiting] = 'hash', [unique] = 'hash', [parked] = 'zset', [next_checks] = 'zset' })
if wrong then
  return wrong
end

-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', limits, '')
local stale, unused = {}, 0
for at = 9, #ARGV, 6 do
  local entry, id, key, member = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local stream = ARGV[at] == '0' and ready or urgent
  if #redis.call('xpending', stream, group, entry, entry, 1, consumer) == 1 then
    local take, next_check
    if not redis.call('zscore', next_checks, key) then
      take, next_check = permit_of(key)
      next_check = take and ms or next_check
    end
    redis.call('hset', waiting, member, ARGV[at + 5])
    redis.call('hset', unique, member, id, id, member)
    redis.call('zadd', parked, hash_of(key), member)
    if next_check then
      redis.call('zadd', next_checks, next_check, key)
    end
    redis.call('xack', stream, group, entry)
    redis.call('xdel', stream, entry)
    unused = unused + 1
  else
    stale[#stale + 1] = entry
  end
end
-- Return their grants of the queue's own rate.
if rate > 0 and unused > 0 then
  local _, words = window(redis.call('hget', limits, 'r'), rate, width, now)
  for i = #words, 1, -1 do
    local back = math.min(unused, words[i][2])
    words[i][2], unused = words[i][2] - back, unused - back
    if words[i][2] == 0 then
      table.remove(words, i)
    end
  end
  redis.call('hset', limits, 'r', granted(words, 0, rate, width, 0))
end
return stale
