-- with clock
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

-- Return the field of `unique` with the latest time, ms, to which publishes may postpone a member, and the id that it
-- then has: 'ms:id'. No member and no id contains a line break.
local function latest_field(member)
  return member .. '\n'
end

-- Remove the links between the member of a unique or parked message and its id.
local function forget_member(unique, member, id)
  local link = redis.call('hget', unique, id) == member and id or member
  redis.call('hdel', unique, member, latest_field(member), link)
end

-- The ids of messages that were replaced under their unique keys, for a day.
local function note_replaced(replaced, id, now)
  redis.call('zadd', replaced, now, id)
  -- At most 10,000, so that a key that is replaced a thousand times a second cannot fill the memory.
  redis.call('zremrangebyrank', replaced, 0, -10001)
  redis.call('expire', replaced, 86400)
end

local function was_replaced(replaced, id)
  local at = redis.call('zscore', replaced, id)
  return at and tonumber(at) > now_ms() - 86400000
end
