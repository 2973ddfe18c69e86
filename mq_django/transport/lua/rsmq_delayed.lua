-- Read a page of the messages of an RSMQ queue that are hidden and not held by a consumer of ours, with their bodies.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- ARGV[1]  start      how many to pass over
-- ARGV[2]  limit      messages, at most 501
-- ARGV[3]  bytes      a longer body is left out
--
-- Returns {now in ms, messages there are, then for each of the page: member, score, body or its length, or -1 for none}.

-- with clock
local zset, hash, owners, unhandled = unpack(KEYS)
local now = now_ms()
local visible = redis.call('zcount', zset, '-inf', now)

-- What is hidden for another reason: by its rank, and in the order of these.
local elsewhere, ranks = {}, {}
local function leave_out(id)
  local rank = redis.call('zrank', zset, id)
  if rank and rank >= visible and not elsewhere[id] then
    elsewhere[id] = true
    ranks[#ranks + 1] = rank
  end
end
local owned = redis.call('hgetall', owners)
for at = 1, #owned, 2 do
  if redis.call('hget', hash, owned[at] .. ':rc') == string.match(owned[at + 1], ' (%d+)$') then
    leave_out(owned[at])
  end
end
for _, id in ipairs(redis.call('zrange', unhandled, 0, 999)) do
  leave_out(id)
end
table.sort(ranks)

local first = visible + ARGV[1]
for _, rank in ipairs(ranks) do
  first = first + (rank <= first and 1 or 0)
end
local reply = { now, math.max(0, redis.call('zcard', zset) - visible - #ranks) }
local page = redis.call('zrange', zset, first, first + ARGV[2] + #ranks - 1, 'withscores')
for at = 1, #page, 2 do
  local id = page[at]
  if not elsewhere[id] and #reply < 2 + 3 * ARGV[2] then
    local length = redis.call('hstrlen', hash, id)
    local body = length == 0 and -1 or length
    if length > 0 and length <= tonumber(ARGV[3]) then
      body = redis.call('hget', hash, id)
    end
    for _, value in ipairs({ id, page[at + 1], body }) do
      reply[#reply + 1] = value
    end
  end
end
return reply
