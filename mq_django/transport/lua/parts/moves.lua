-- with bodies
-- with forget
-- Make messages of a sorted set ready, and only then take them out. Return how many, and what ended it, if something did.
local function make_all_ready(from, members, waiting, unique, make_ready)
  local bodies, moved, gone, failed = redis.call('hmget', waiting, unpack(members)), {}, {}, nil
  for i, member in ipairs(members) do
    local id, stays = id_of(member), nil
    -- The member is the message's id, but for a unique or parked message, whose body holds it.
    if unique and string.match(member, '^[up]:') then
      id = redis.call('hget', unique, member)
    end
    -- A member without a body is what is left of a message somebody took apart by hand: there is nothing to deliver.
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
