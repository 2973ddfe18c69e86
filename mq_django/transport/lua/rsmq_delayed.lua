-- Read a page of the hidden messages of an RSMQ queue that no consumer of ours holds, with their bodies.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- ARGV[1]  start      messages to skip
-- ARGV[2]  limit      messages, at most 501
-- ARGV[3]  bytes      a longer body is replaced by its length
--
-- Returns {now in ms, number of messages, then for each of the page: member, score, body or its length, or -1 for
-- none}.

-- with clock
-- with lists
-- with pages
local zset, hash, owners, unhandled = unpack(KEYS)
local now = now_ms()
local visible = redis.call('zcount', zset, '-inf', now)

-- Messages that are hidden for another reason, and their ranks in order.
local not_delayed, ranks = {}, {}
local function exclude(id)
  local rank = redis.call('zrank', zset, id)
  if rank and rank >= visible and not not_delayed[id] then
    not_delayed[id] = true
    ranks[#ranks + 1] = rank
  end
end
local owned = redis.call('hgetall', owners)
for at = 1, #owned, 2 do
  if redis.call('hget', hash, owned[at] .. ':rc') == string.match(owned[at + 1], ' (%d+)$') then
    exclude(owned[at])
  end
end
for _, id in ipairs(redis.call('zrange', unhandled, 0, 999)) do
  exclude(id)
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
  if not not_delayed[id] and #reply < 2 + 3 * ARGV[2] then
    add_all(reply, id, page[at + 1], body_or_length(hash, id, tonumber(ARGV[3])))
  end
end
return reply
