-- with bodies
-- with clock
-- with waiting_members
-- Bodies that are read at a time, more while they are small, and bytes after which no more are: to move 100 MB would block
-- Redis for a second. Seconds of its processor after which no more are read: Redis also removes what was moved.
local BODIES, MORE_BODIES, SMALL, MOST_BYTES, MOST_SECONDS = 5, 20, 16384, 4 * 1024 * 1024, 0.0015

-- Seconds on a clock that goes on while a script runs, if there is one: on newer servers TIME stands still, on older ones
-- there is no `os`.
local function stopwatch()
  local found = rawget(_G, 'os')
  return found and found.clock() or now_us() / 1000000
end

-- Make messages of a sorted set ready, and remove them from it afterwards: at least one, and as many as fit into
-- MOST_BYTES and MOST_SECONDS. `are_first`: they are the first of the set, in order. Return how many, and the error, if any.
local function make_all_ready(from, members, waiting, unique, make_ready, are_first)
  local bodies, before, read, size, began = nil, 0, 0, 0, nil
  local moved, gone, removed, failed, byte = 0, {}, 0, nil, string.byte
  for at = 1, #members do
    local member = members[at]
    if at > read then
      local now = at > 1 and stopwatch()
      began = began or now
      if now and now - began > MOST_SECONDS then
        break
      end
      before, read = read, math.min(read + (at > 1 and size < at * SMALL and MORE_BODIES or BODIES), #members)
      bodies = redis.call('hmget', waiting, unpack(members, at, read))
    end
    local body, id, stays = bodies[at - before], member, nil
    size = size + #(body or '')
    if size > MOST_BYTES and at > 1 then
      break
    end
    -- The member is the message's id, except of a unique or parked message: these have a prefix of two characters.
    if byte(member, 2) == 58 then
      id = id_of(member)
      if unique and string.match(member, '^[up]:') then
        id = redis.call('hget', unique, member)
      end
    end
    -- A member without a body is the rest of a message that was deleted by hand.
    if body then
      failed, stays = make_ready(id, body, member)
    end
    if failed then
      break
    end
    if id and id ~= member then
      forget_member(unique, member, id)
    end
    moved = at
    if not stays then
      removed = removed + 1
      gone[removed] = member
    end
  end
  if moved > 0 and are_first then
    redis.call('zremrangebyrank', from, 0, moved - 1)
  elseif moved > 0 then
    redis.call('zrem', from, unpack(members, 1, moved))
  end
  if removed > 0 then
    redis.call('hdel', waiting, unpack(gone))
  end
  return moved, failed
end
