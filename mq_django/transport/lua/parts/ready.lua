-- with ranks
-- Return what makes messages of the waiting room ready. One with a priority goes into `ready` when nothing undelivered
-- stands anywhere, so that a blocked reader gets it at once, and else into `priority`, where fetches look first.
local function readier(ready, priority, waiting, control, group)
  -- Whoever blocked before a queue's first priority does not look into `priority` on waking: then a batch is for all.
  local readers_know = redis.call('hexists', control, 'ranked') == 1
  local stands, added
  return function(id, body)
    local ranked = id and priority_of(body) ~= 0
    if ranked and stands == nil then
      stands = added and readers_know
        or redis.call('zcard', priority) > 0
        or not added and #undelivered(ready, group, 1) > 0
      redis.call('hincrby', control, 'ranked', 0)
    end
    if ranked and stands then
      rank(priority, waiting, control, id, body, 'ranked', 1)
    elseif id then
      redis.call('xadd', ready, '*', 'id', id, 'message', body)
      added, stands = true, ranked and readers_know or stands
    else
      redis.call('xadd', ready, '*', 'message', body)
      added = true
    end
  end
end
