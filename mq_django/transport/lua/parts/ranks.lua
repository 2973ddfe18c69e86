-- with undelivered
-- with increment
-- with bodies
-- Messages with a priority. Their score in `priority` is -priority * 2^44 + n: n counts arrivals, so that equal
-- priorities keep their order, and counts down for messages that return to the front. `ranked` in control says that
-- priorities were used.
local BAND = 17592186044416

-- Return the priority of a body, which starts with it, or 0.
local function priority_of(body)
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"')) or 0
  return math.max(-100, math.min(100, level))
end

-- Add a member to `priority`.
local function rank(priority, control, member, body, counter, step)
  local n = increment(control, counter, step)
  redis.call('zadd', priority, string.format('%.0f', -priority_of(body) * BAND + n), member)
end

-- Move prioritised messages from the front of `ready` to `priority`.
local function rerank(ready, priority, waiting, control, group)
  local back, first = {}, undelivered(ready, group, 1)[1]
  while first and #back < 1000 do
    local fields = first[2]
    if #fields ~= 4 or fields[3] ~= 'message' or priority_of(fields[4]) == 0 then
      break
    end
    table.insert(back, 1, first)
    first = redis.call('xrange', ready, '(' .. first[1], '+', 'count', 1)[1]
  end
  for _, entry in ipairs(back) do
    local id, body = entry[2][2], entry[2][4]
    rank(priority, control, put_body(waiting, id, body), body, 'fronts', -1)
    redis.call('xdel', ready, entry[1])
  end
end

-- Return the oldest message of each priority, oldest first.
local function longest_waiting(priority, count)
  -- All scores are between these.
  local heads, ids, from, to = {}, {}, '-9e15', '9e15'
  repeat
    local head = redis.call('zrangebyscore', priority, from, to, 'withscores', 'limit', 0, 1)
    if head[1] then
      local band = math.floor(head[2] / BAND + 0.5) * BAND
      table.insert(heads, { head[1], head[2] - band })
      from = string.format('(%.0f', band + BAND / 2)
    end
  until not head[1]
  table.sort(heads, function(a, b)
    return a[2] < b[2]
  end)
  for i = 1, math.min(count, #heads) do
    ids[i] = heads[i][1]
  end
  return ids
end
