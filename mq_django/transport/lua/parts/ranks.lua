-- with undelivered
-- with numbers
-- with bodies
-- with body_attributes
-- Read the priority of a waiting message: a number, or text with one.

local function number_after(text, at)
  return tonumber(string.match(text, '^%s*:%s*"?(%-?%d+)%.?0*"?%s*[,}]', at))
end

-- Return the priority of a body, or 0.
local function priority_of(body)
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"'))
  return math.max(-100, math.min(100, level or attribute_of(body, 'priority"', number_after) or 0))
end

-- Messages with a priority. Their score in `priority` is -priority * 2^44 + n: n counts arrivals, so that equal
-- priorities keep their order, and counts down for messages that return to the front. `ranked` in control says that
-- priorities were used.
local BAND = 17592186044416

-- Add a member to `priority`.
local function rank(priority, control, member, level, counter, step)
  local n = increment(control, counter, step)
  redis.call('zadd', priority, string.format('%.0f', -level * BAND + n), member)
end

-- Move prioritised messages from the front of `ready` to `priority`.
local function rerank(ready, priority, waiting, control, group)
  local back, first = {}, undelivered(ready, group, 1)[1]
  while first and #back < 1000 do
    local fields = first[2]
    local level = #fields == 4 and fields[3] == 'message' and priority_of(fields[4]) or 0
    if level == 0 then
      break
    end
    table.insert(back, 1, { first[1], fields[2], fields[4], level })
    first = redis.call('xrange', ready, '(' .. first[1], '+', 'count', 1)[1]
  end
  for _, found in ipairs(back) do
    local entry, id, body, level = unpack(found)
    rank(priority, control, put_body(waiting, id, body), level, 'fronts', -1)
    redis.call('xdel', ready, entry)
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
