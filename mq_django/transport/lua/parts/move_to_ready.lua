-- with bodies
-- with forget_member
-- Make messages of a sorted set ready, and remove them from it afterwards. Return how many, and the error, if any.
local function make_all_ready(from, members, waiting, unique, make_ready)
  local bodies, moved, gone, failed = redis.call('hmget', waiting, unpack(members)), {}, {}, nil
  for i, member in ipairs(members) do
    local id, stays = id_of(member), nil
    -- The member is the message's id, except of a unique or parked message.
    if unique and string.match(member, '^[up]:') then
      id = redis.call('hget', unique, member)
    end
    -- A member without a body is the rest of a message that was deleted by hand.
    if bodies[i] then
      failed, stays = make_ready(id, bodies[i], member)
    end
    if failed then
      break
    end
    if id and id ~= member then
      forget_member(unique, member, id)
    end
    moved[#moved + 1] = member
    gone[#gone + 1] = not stays and member or nil
  end
  if #moved > 0 then
    redis.call('zrem', from, unpack(moved))
  end
  if #gone > 0 then
    redis.call('hdel', waiting, unpack(gone))
  end
  return #moved, failed
end
