-- Find what a message waits under: `unique` leads from its id to that when it is not the id itself.
local function member_of(unique, claims, named)
  if string.sub(named, 1, 2) == 'p:' then
    return named
  end
  if string.sub(named, 1, 2) ~= 'u:' then
    return redis.call('hget', unique, named) or named
  end
  if redis.call('hexists', unique, named) == 1 then
    return named
  end
  local claim = redis.call('hget', claims, 'k:' .. string.sub(named, 3))
  local id = claim and string.match(claim, '^%d+:(.*)$')
  return id and (redis.call('hget', unique, id) or id) or named
end
