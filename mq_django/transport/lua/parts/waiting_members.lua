-- Return the member of a waiting message. `unique` has it by the id if it is not the id itself. It is only valid if
-- `unique` also leads back: another program that replaced a message may have left the link from the old id.
local function member_under(unique, id)
  local member = redis.call('hget', unique, id)
  return member and redis.call('hget', unique, member) == id and member or id
end

local function member_of(unique, claims, id_or_unique)
  if string.sub(id_or_unique, 1, 2) == 'p:' then
    return id_or_unique
  end
  if string.sub(id_or_unique, 1, 2) ~= 'u:' then
    return member_under(unique, id_or_unique)
  end
  if redis.call('hexists', unique, id_or_unique) == 1 then
    return id_or_unique
  end
  local claim = redis.call('hget', claims, 'k:' .. string.sub(id_or_unique, 3))
  local id = claim and string.match(claim, '^%d+:(.*)$')
  return id and member_under(unique, id) or id_or_unique
end
