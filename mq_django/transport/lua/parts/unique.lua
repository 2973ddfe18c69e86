-- with bodies
-- with replaced
-- Add a delayed message and return its id, or the id of the message that keeps its place under the same unique key. The
-- id of a replaced message is remembered for a day, and returned as well.
local function put_waiting(due, waiting, unique, replaced, conflict, now, id, member, score, body)
  if member == id then
    redis.call('zadd', due, score, put_body(waiting, id, body))
    return id
  end
  local old = redis.call('zscore', due, member)
  local old_id = old and redis.call('hget', unique, member) or id
  if old and (conflict == 'keep' or (conflict == 'earliest' and tonumber(old) <= tonumber(score))) then
    return old_id
  end
  redis.call('hset', waiting, member, body)
  redis.call('zadd', due, score, member)
  if old_id ~= id then
    redis.call('hdel', unique, old_id)
    note_replaced(replaced, old_id, now)
  end
  redis.call('hset', unique, member, id, id, member)
  return id, old_id ~= id and old_id or nil
end
