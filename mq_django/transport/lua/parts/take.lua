-- with ranks
-- Take messages for a consumer, first what was handed back, then positive priorities, what is ready, negative ones.
-- The script has named its keys and arguments: ready, urgent, priority, waiting, control, group, consumer.
local taken, failed = { {}, {} }, nil

-- Read a stream (1 is `ready`, 2 is `urgent`) and return how many may still be taken; so do those below.
local function read(home, count)
  if count <= 0 or (home == 2 and redis.call('exists', urgent) == 0) then
    return count
  end
  local stream = home == 1 and ready or urgent
  -- An error must not lose what was taken before it: its consumer would hold that unseen.
  local reply = redis.pcall('xreadgroup', 'group', group, consumer, 'count', count, 'streams', stream, '>')
  failed = reply and reply.err and reply or failed
  local found = reply and reply[1] and reply[1][2] or {}
  if #taken[home] == 0 then
    taken[home] = found
  else
    for _, entry in ipairs(found) do
      table.insert(taken[home], entry)
    end
  end
  return count - #found
end

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

-- What was taken, or the error when nothing was.
local function all_taken(...)
  if failed and #taken[1] + #taken[2] == 0 then
    return failed
  end
  return { taken[1], taken[2], ... }
end
