-- with ranks
-- with move_to_ready
-- with take
-- Take messages for a consumer by their priority: positive ones, `ready`, negative ones; or with ageing those that have
-- waited longest by their score. `keys` has the queue's keys ready, front, control, priority and waiting, and `ageing`: see
-- parts/ranks.

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

local function middle_band(priority, count)
  return redis.call('zrangebyscore', priority, -BAND / 2, BAND / 2, 'withscores', 'limit', 0, count)
end

-- Return the first messages by their age, and their scores.
local function oldest(keys, count)
  local first = redis.call('zrange', keys.priority, 0, count - 1, 'withscores')
  local last = redis.call('zrange', keys.priority, -1, -1, 'withscores')
  if is_aged(first[2]) and is_aged(last[2]) then
    return first
  end
  age(keys.priority, keys.control, keys.ageing)
  return middle_band(keys.priority, count)
end

-- Take messages of `ready`, of which `first` is the first, and those that were ranked with ageing. Their scores are noted:
-- the messages of a batch are handled in this order, too.
local function in_time(taking, keys, first, count)
  if count <= 0 then
    return count
  end
  local aged = keys.ageing > 0 and oldest(keys, count) or middle_band(keys.priority, count)
  if #aged == 0 and keys.ageing == 0 then
    redis.call('hdel', keys.control, 'ageing')
  end
  local plain, ids, plains = { first }, {}, 0
  if first and count > 1 and #aged > 0 and number_of(aged[#aged]) > ms_of(first) then
    plain = redis.call('xrange', keys.ready, first[1], '+', 'count', count)
  end
  while #ids + plains < count do
    local score, entry = aged[2 * #ids + 2], plain[plains + 1]
    if not score then
      plains = first and count - #ids or 0
      break
    elseif entry and ms_of(entry) < tonumber(score) then
      plains = plains + 1
    else
      ids[#ids + 1] = aged[2 * #ids + 1]
    end
  end
  local before = #taking.taken[2]
  local left = deliver(taking, keys, ids, count)
  for at = before + 1, #taking.taken[2] do
    taking.scores = taking.scores or {}
    taking.scores[taking.taken[2][at][1]] = number_of(aged[2 * (at - before)])
  end
  return left - plains + read(taking, 1, plains)
end

local function by_rank(taking, keys, count)
  local first = rerank(keys.ready, keys.priority, keys.waiting, keys.control, taking.group, keys.ageing)
  if redis.call('zcard', keys.priority) == 0 then
    return read(taking, 1, count)
  end
  if keys.ageing and keys.ageing > 0 then
    return in_time(taking, keys, first, count)
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
  if keys.ageing then
    count = in_time(taking, keys, undelivered(keys.ready, taking.group, 1)[1], count)
  else
    count = read(taking, 1, count)
  end
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
