-- with ranks
-- Return what makes messages of the waiting room ready. One with a priority goes into `ready` when nothing undelivered
-- stands anywhere, so that a blocked reader gets it at once, and else into `priority`, where fetches look first.
local function readier(ready, priority, waiting, control, group)
  -- Whoever blocked before a queue's first priority does not look into `priority` on waking: then a batch is for all.
  local readers_know = redis.call('hexists', control, 'ranked') == 1
  local stands, added
  -- `member` is what the body waits under already, if it does. Returns the error that kept the message from becoming
  -- ready, or else nil, and whether it goes on to wait under this member.
  return function(id, body, member)
    local ranked = id and priority_of(body) ~= 0
    if ranked and stands == nil then
      stands = added and readers_know
        or redis.call('zcard', priority) > 0
        or not added and #undelivered(ready, group, 1) > 0
      counted(control, 'ranked', 0)
    end
    if ranked and stands then
      local stays = member == id
      rank(priority, control, stays and id or put_body(waiting, id, body), body, 'ranked', 1)
      return nil, stays
    end
    local failed = add_entry(ready, id, body)
    if not failed then
      added, stands = true, ranked and readers_know or stands
    end
    return failed, false
  end
end
