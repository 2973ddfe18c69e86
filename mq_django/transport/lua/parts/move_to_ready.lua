-- with bodies
-- with waiting_members
-- Bodies that are read at a time, and bytes after which no more are: to move 100 MB would block Redis for a second.
local BODIES, MOST_BYTES = 5, 4 * 1024 * 1024

-- Make messages of a sorted set ready, and remove them from it afterwards: at least one, and as many as fit into
-- MOST_BYTES. Return how many, and the error, if any.
local function make_all_ready(from, members, waiting, unique, make_ready)
  local bodies, size, moved, gone, failed = {}, 0, {}, {}, nil
  for at, member in ipairs(members) do
    local i = (at - 1) % BODIES + 1
    if i == 1 then
      bodies = redis.call('hmget', waiting, unpack(members, at, math.min(at + BODIES - 1, #members)))
    end
    size = size + #(bodies[i] or '')
    if size > MOST_BYTES and #moved > 0 then
      break
    end
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
