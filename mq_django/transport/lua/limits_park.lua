-- Let deliveries wait for a permit of their key, uncharged.
--
-- KEYS and ARGV[1..8]: see parts/limits; ARGV[2], the consumer, must still hold each delivery
-- then for each delivery: home, entry, the message's id, key, member, body
--
-- Returns the ids of the entries that the consumer no longer holds; these are left as they are.

-- with types
-- with limits
-- with permits
local wrong = wrong_type({ [waiting] = 'hash', [unique] = 'hash', [parked] = 'zset', [turns] = 'zset' })
if wrong then
  return wrong
end

-- A write that is allowed when memory is out: after it the others are, and a full Redis can be emptied.
redis.call('hdel', limits, '')
local stale, unused = {}, 0
for at = 9, #ARGV, 6 do
  local entry, id, key, member = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local stream = ARGV[at] == '0' and ready or urgent
  if #redis.call('xpending', stream, group, entry, entry, 1, consumer) == 1 then
    local take, again
    if not redis.call('zscore', turns, key) then
      take, again = permit_of(key)
      again = take and ms or again
    end
    redis.call('hset', waiting, member, ARGV[at + 5])
    redis.call('hset', unique, member, id, id, member)
    redis.call('zadd', parked, hash_of(key), member)
    if again then
      redis.call('zadd', turns, again, key)
    end
    redis.call('xack', stream, group, entry)
    redis.call('xdel', stream, entry)
    unused = unused + 1
  else
    stale[#stale + 1] = entry
  end
end
-- What the queue's own rate had granted them is for others.
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
