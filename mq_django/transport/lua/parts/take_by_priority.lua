-- with ranks
-- with move_to_ready
-- with take
-- Take messages for a consumer by their priority: positive ones, `ready`, negative ones. `keys` has the queue's keys
-- ready, front, control, priority and waiting.

local function deliver(taking, keys, ids, count)
  if #ids == 0 then
    return count
  end
  local front = keys.front
  if redis.call('exists', front) == 0 then
    redis.call('xgroup', 'create', front, taking.group, '0', 'mkstream')
  end
  local _, wrong = make_all_ready(keys.priority, ids, keys.waiting, nil, function(id, body)
    return add_entry(front, id, body)
  end)
  taking.failed = wrong or taking.failed
  return read(taking, 2, count)
end

local function deliver_between(taking, keys, low, high, count)
  if count <= 0 then
    return count
  end
  local ids = redis.call('zrangebyscore', keys.priority, low, high, 'limit', 0, count)
  return deliver(taking, keys, ids, count)
end

local function by_rank(taking, keys, count)
  rerank(keys.ready, keys.priority, keys.waiting, keys.control, taking.group)
  if redis.call('zcard', keys.priority) == 0 then
    return read(taking, 1, count)
  end
  -- Every 16th fetch prevents starvation: it begins with `ready` or, the next time, with the oldest message of each
  -- priority.
  local turn = increment(keys.control, 'turns', 1) % 32
  if turn == 16 then
    count = read(taking, 1, count)
  elseif turn == 0 then
    count = deliver(taking, keys, longest_waiting(keys.priority, count), count)
  end
  count = deliver_between(taking, keys, '-inf', -BAND / 2, count)
  count = read(taking, 1, count)
  return deliver_between(taking, keys, BAND / 2, '+inf', count)
end

-- Take messages by priority. If that fails, read `ready`. Return how many may still be taken.
local function take_by_rank(taking, keys, count)
  local before = count_taken(taking)
  if not keep_taken(taking, by_rank, taking, keys, count) then
    read(taking, 1, count + before - count_taken(taking))
  end
  return count + before - count_taken(taking)
end
