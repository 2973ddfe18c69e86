-- with undelivered
-- Messages with a priority. Their score in `priority` is -priority * 2^44 + n: n counts arrivals, so that equals stay
-- in their order; it counts down for those put back to the front. That they were ever used, `ranked` in control says.
local BAND = 17592186044416

-- The priority of a body of the waiting room, which starts with it, or 0.
local function priority_of(body)
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"')) or 0
  return math.max(-100, math.min(100, level))
end

local function rank(priority, waiting, control, id, body, counter, step)
  local n = redis.call('hincrby', control, counter, step)
  redis.call('zadd', priority, string.format('%.0f', -priority_of(body) * BAND + n), id)
  redis.call('hset', waiting, id, body)
end

-- Put what stands first in `ready` and has a priority where it belongs by now.
local function rerank(ready, priority, waiting, control, group)
  local back = {}
  while #back < 1000 do
    local first = undelivered(ready, group, 1)[1]
    local fields = first and first[2] or {}
    if #fields ~= 4 or fields[3] ~= 'message' or priority_of(fields[4]) == 0 then
      break
    end
    redis.call('xdel', ready, first[1])
    table.insert(back, 1, fields)
  end
  for _, fields in ipairs(back) do
    rank(priority, waiting, control, fields[2], fields[4], 'fronts', -1)
  end
end

-- Of each priority the one that waits longest, the one that came first coming first.
local function longest_waiting(priority, count)
  local heads, ids, from = {}, {}, '-inf'
  repeat
    local head = redis.call('zrangebyscore', priority, from, '+inf', 'withscores', 'limit', 0, 1)
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
