-- with undelivered
-- with counted
-- with bodies
-- Messages with a priority. Their score in `priority` is -priority * 2^44 + n: n counts arrivals, so that equals stay
-- in their order; it counts down for those put back to the front. That they were ever used, `ranked` in control says.
local BAND = 17592186044416

-- The priority of a body of the waiting room, which starts with it, or 0.
local function priority_of(body)
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"')) or 0
  return math.max(-100, math.min(100, level))
end

-- Let a message wait by its priority, under a member that has its body.
local function rank(priority, control, member, body, counter, step)
  local n = counted(control, counter, step)
  redis.call('zadd', priority, string.format('%.0f', -priority_of(body) * BAND + n), member)
end

-- Put what stands first in `ready` and has a priority where it belongs by now.
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

-- Of each priority the one that waits longest, the one that came first coming first.
local function longest_waiting(priority, count)
  -- No priority of ours leads beyond these.
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
