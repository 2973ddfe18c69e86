-- Forget which id a unique or parked message has, and, unless another message has the same id, where that one waits.
local function forget_member(unique, member, id)
  redis.call('hdel', unique, member)
  if redis.call('hget', unique, id) == member then
    redis.call('hdel', unique, id)
  end
end
