-- Find what a message waits under: `unique` leads from its id to that when it is not the id itself. It must lead back,
-- too: a program that replaced the message may have left the way from the old id to the new message.
local function member_under(unique, id)
  local member = redis.call('hget', unique, id)
  return member and redis.call('hget', unique, member) == id and member or id
end

local function member_of(unique, claims, named)
  if string.sub(named, 1, 2) == 'p:' then
    return named
  end
  if string.sub(named, 1, 2) ~= 'u:' then
    return member_under(unique, named)
  end
  if redis.call('hexists', unique, named) == 1 then
    return named
  end
  local claim = redis.call('hget', claims, 'k:' .. string.sub(named, 3))
  local id = claim and string.match(claim, '^%d+:(.*)$')
  return id and member_under(unique, id) or named
end
