-- with ranks
-- Return a function that makes a message ready. A prioritised message goes to `ready` if no message is waiting for
-- delivery, so that a blocked reader gets it at once, and else to `priority`, which fetches read by rank.
-- `ageing`: by the settings of who publishes, until a consumer has said its own: see parts/ranks.
local function make_ready_with(ready, priority, waiting, control, group, ageing)
  local known = redis.call('hmget', control, 'ranked', 'ageing')
  -- A reader that blocked before the queue's first priority does not read `priority` when it wakes.
  local readers_know, is_queued, added = known[1], nil, nil
  -- If `member` is given, `waiting` already has the body under it. Returns the error, or nil and whether the member is
  -- still in use.
  return function(id, body, member)
    local level = id and priority_of(body) or 0
    if level == 0 then
      added = true
      return add_entry(ready, id, body)
    end
    if is_queued == nil then
      is_queued = added and readers_know
        or redis.call('zcard', priority) > 0
        or not added and #undelivered(ready, group, 1) > 0
      increment(control, 'ranked', 0)
      if ageing and not known[2] then
        redis.call('hset', control, 'ageing', ageing)
        known[2] = ageing
      end
    end
    if is_queued then
      local stays = member == id
      rank(priority, control, stays and id or put_body(waiting, id, body), level, 'ranked', 1, ageing_of(known[2]))
      return nil, stays
    end
    local failed = add_entry(ready, id, body)
    if not failed then
      added, is_queued = true, readers_know
    end
    return failed
  end
end
