-- Make the first parked message of a key ready, if there is a permit for it, and return its entry.
local function release(key, home)
  local hash = hash_of(key)
  local member = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, 1)[1]
  if not member then
    redis.call('zrem', turns, key)
    return nil
  end
  local take, again = permit_of(key)
  redis.call('zadd', turns, take and ms or again, key)
  if not take then
    return nil
  end
  local id, body = redis.call('hget', unique, member) or member, redis.call('hget', waiting, member)
  redis.call('zrem', parked, member)
  redis.call('hdel', waiting, member)
  redis.call('hdel', unique, member, id)
  if not body then
    return nil
  end
  if home == 1 and redis.call('exists', urgent) == 0 then
    redis.call('xgroup', 'create', urgent, group, '0', 'mkstream')
  end
  local entry = redis.call('xadd', home == 1 and urgent or ready, '*', 'id', id, 'message', body)
  take(home, entry)
  return entry
end
