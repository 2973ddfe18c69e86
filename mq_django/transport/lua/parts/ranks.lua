-- with undelivered
-- with numbers
-- with bodies
-- with body_attributes
-- with clock
-- Read the priority of a waiting message: a number, or text with one.

local function number_after(text, at)
  return tonumber(string.match(text, '^%s*:%s*"?(%-?%d+)%.?0*"?%s*[,}]', at))
end

-- Return the priority of a body, or 0.
local function priority_of(body)
  if not string.find(body, 'priority"', 1, true) then
    return 0
  end
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"'))
  return math.max(-100, math.min(100, level or attribute_of(body, 'priority"', number_after) or 0))
end

-- Messages with a priority. Their score in `priority` is -priority * 2^44 + n: n counts arrivals, so that equal
-- priorities keep their order, and counts down for messages that return to the front. `ranked` in control says that
-- priorities were used.
local BAND = 17592186044416

-- With ageing the score is the time, ms, at which a message without a priority is taken together with it: when it came,
-- `ageing` ms earlier for each step of its priority. All of them are in the middle band, where no other one is.
-- `ageing` in control is 0 when the queue has it no more, and has such messages.
local MOST_AGEING = 86400000

-- Return the ms that are worth a step of priority, or nil if the queue never had ageing.
local function ageing_of(text)
  return text and math.max(0, math.min(MOST_AGEING, number_of(text)))
end

local function is_aged(score)
  return math.abs(score) < BAND / 2
end

local function aged_score(level, ageing, ms)
  return string.format('%.3f', ms - level * ageing)
end

-- Return the time, ms, as that of a message that comes now: each one has a later time, as entries of a stream have.
local function arrival(control)
  local micros = math.max(now_us(), number_of(redis.call('hget', control, 'aged')) + 1)
  redis.call('hset', control, 'aged', string.format('%.0f', micros))
  return micros / 1000
end

-- Add a member to `priority`.
local function rank(priority, control, member, level, counter, step, ageing)
  local score
  if ageing and ageing > 0 then
    score = aged_score(level, ageing, arrival(control))
  else
    score = string.format('%.0f', -level * BAND + increment(control, counter, step))
  end
  redis.call('zadd', priority, score, member)
end

-- Rank messages with ageing that were ranked without: they wait from now on. A part in each call.
local function age(priority, control, ageing)
  for _, range in ipairs({ { '-inf', -BAND / 2 }, { BAND / 2, '+inf' } }) do
    local found = redis.call('zrangebyscore', priority, range[1], range[2], 'withscores', 'limit', 0, 500)
    for at = 1, #found, 2 do
      local level = math.max(-100, math.min(100, -math.floor(found[at + 1] / BAND + 0.5)))
      rank(priority, control, found[at], level, '', 0, ageing)
    end
  end
end

-- Return the score of a prioritised entry of `ready`. One that woke a reader has waited before: see stream_fetch.
local function score_of_entry(control, entry, level, ageing)
  local woken, score = string.match(redis.call('hget', control, 'woken') or '', '^(%S+) (%-?[%d.]+)$')
  local ms, n = string.match(entry, '^(%d+)%-(%d+)$')
  return woken == entry and score or aged_score(level, ageing, ms + math.min(n, 999) / 1000 - 0.001)
end

-- Move prioritised messages from the front of `ready` to `priority`, and return the first entry that follows.
local function rerank(ready, priority, waiting, control, group, ageing)
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
    local member = put_body(waiting, id, body)
    if ageing and ageing > 0 then
      redis.call('zadd', priority, score_of_entry(control, entry, level, ageing), member)
    else
      rank(priority, control, member, level, 'fronts', -1)
    end
    redis.call('xdel', ready, entry)
  end
  return first
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
