-- Remove the links between the member of a unique or parked message and its id.
local function forget_member(unique, member, id)
  redis.call('hdel', unique, member)
  if redis.call('hget', unique, id) == member then
    redis.call('hdel', unique, id)
  end
end
