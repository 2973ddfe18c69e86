-- with ranks
-- with moves
-- Take messages for a consumer by their priority: the positive ones, what is ready, the negative ones. The script has
-- parts/take, and has named priority, waiting and control, too.

local function deliver(ids, count)
  if #ids == 0 then
    return count
  end
  if redis.call('exists', urgent) == 0 then
    redis.call('xgroup', 'create', urgent, group, '0', 'mkstream')
  end
  local _, wrong = make_all_ready(priority, ids, waiting, nil, function(id, body)
    return add_entry(urgent, id, body)
  end)
  failed = wrong or failed
  return read(2, count)
end

local function deliver_between(low, high, count)
  if count <= 0 then
    return count
  end
  return deliver(redis.call('zrangebyscore', priority, low, high, 'limit', 0, count), count)
end

local function by_rank(count)
  rerank(ready, priority, waiting, control, group)
  if redis.call('zcard', priority) == 0 then
    return read(1, count)
  end
  -- Every 16th fetch takes first, by turns, what is ready, and what has waited longest of each priority.
  local turn = counted(control, 'turns', 1) % 32
  if turn == 16 then
    count = read(1, count)
  elseif turn == 0 then
    count = deliver(longest_waiting(priority, count), count)
  end
  count = deliver_between('-inf', -BAND / 2, count)
  count = read(1, count)
  return deliver_between(BAND / 2, '+inf', count)
end

-- What is ready is taken also when something is wrong with the rest.
local function take_by_rank(count)
  local before = #taken[1] + #taken[2]
  if not careful(by_rank, count) then
    read(1, count + before - #taken[1] - #taken[2])
  end
  return count + before - #taken[1] - #taken[2]
end
