-- with forget_member
-- Make the first parked message of a key ready if the key has a free permit, and return its entry. `stream` is 0 for
-- `ready`, 1 for `urgent`.
local function release_parked(key, stream)
  local hash = hash_of(key)
  local member = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, 1)[1]
  if not member then
    redis.call('zrem', next_checks, key)
    return nil
  end
  local take, next_check = permit_of(key)
  redis.call('zadd', next_checks, take and ms or next_check, key)
  if not take then
    return nil
  end
  local id, body, entry = redis.call('hget', unique, member) or member, redis.call('hget', waiting, member), nil
  if body then
    if stream == 1 and redis.call('exists', urgent) == 0 then
      redis.call('xgroup', 'create', urgent, group, '0', 'mkstream')
    end
    entry = redis.call('xadd', stream == 1 and urgent or ready, '*', 'id', id, 'message', body)
  end
  redis.call('zrem', parked, member)
  redis.call('hdel', waiting, member)
  forget_member(unique, member, id)
  if entry then
    take(stream, entry)
  end
  return entry
end
