-- Remove a message of an RSMQ queue with its notes. Return whether it was in both the sorted set and the hash.
local function remove_message(zset, hash, notes, id)
  local there = redis.call('zrem', zset, id)
  local fields = redis.call('hdel', hash, id, id .. ':rc', id .. ':fr')
  redis.call('hdel', notes, id .. ':free', id .. ':alone', id .. ':lost', id .. ':story')
  return there == 1 and fields > 0
end
