-- with ranks
-- Return what makes messages of the waiting room ready. One with a priority goes into `ready` when nothing undelivered
-- stands anywhere, so that a blocked reader gets it at once, and else into `priority`, where fetches look first.
local function readier(ready, priority, waiting, control, group)
  -- Whoever blocked before a queue's first priority does not look into `priority` on waking.
  local readers_know = redis.call('hexists', control, 'ranked') == 1
  local stands
  return function(id, body)
    if not id then
      redis.call('xadd', ready, '*', 'message', body)
      stands = true
      return
    end
    if priority_of(body) ~= 0 and stands == nil then
      stands = redis.call('zcard', priority) > 0 or #undelivered(ready, group, 1) > 0
      redis.call('hincrby', control, 'ranked', 0)
    end
    if priority_of(body) ~= 0 and stands and readers_know then
      rank(priority, waiting, control, id, body, 'ranked', 1)
    else
      redis.call('xadd', ready, '*', 'id', id, 'message', body)
      stands = true
    end
  end
end
