-- with ranks
-- Take messages for a consumer by their priority: the positive ones, what is ready, the negative ones. The script has
-- parts/take, and has named priority, waiting and control, too.

local function deliver(ids, count)
  if #ids == 0 then
    return count
  end
  if redis.call('exists', urgent) == 0 then
    redis.call('xgroup', 'create', urgent, group, '0', 'mkstream')
  end
  local bodies = redis.call('hmget', waiting, unpack(ids))
  redis.call('zrem', priority, unpack(ids))
  redis.call('hdel', waiting, unpack(ids))
  for i, id in ipairs(ids) do
    if bodies[i] then
      redis.call('xadd', urgent, '*', 'id', id, 'message', bodies[i])
    end
  end
  return read(2, count)
end

local function deliver_between(low, high, count)
  if count <= 0 then
    return count
  end
  return deliver(redis.call('zrangebyscore', priority, low, high, 'limit', 0, count), count)
end

local function take_by_rank(count)
  rerank(ready, priority, waiting, control, group)
  if redis.call('zcard', priority) == 0 then
    return read(1, count)
  end
  -- Every 16th fetch takes first, by turns, what is ready, and what has waited longest of each priority.
  local turn = redis.call('hincrby', control, 'turns', 1) % 32
  if turn == 16 then
    count = read(1, count)
  elseif turn == 0 then
    count = deliver(longest_waiting(priority, count), count)
  end
  count = deliver_between('-inf', -BAND / 2, count)
  count = read(1, count)
  return deliver_between(BAND / 2, '+inf', count)
end
