-- Receive messages of an RSMQ queue: the oldest that can be seen, which are hidden from then on.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that do not count, and more
-- KEYS[5]  control    {namespace}:<queue>:mq:control     HASH   paused
-- KEYS[6]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- ARGV[1]  consumer   '' for one that is not to be remembered, and does not care for a pause
-- ARGV[2]  count      messages, at most 500
-- ARGV[3]  vt         ms to hide them, or '' for what the queue says
--
-- Returns {ms until the next can be seen or -1, then for each message: id, body, receive count, when it was first
-- received, receives that do not count, '1' or 'suspect' if it must run alone, the story of its attempts}; or 'PAUSED' or
-- 'NOQUEUE'.

-- with clock
-- with rsmq
-- with counted
-- with rsmq_drains
local zset, hash, owners, notes, control, unhandled = unpack(KEYS)
local consumer = ARGV[1]
if consumer ~= '' and redis.call('hget', control, 'paused') == '1' then
  return 'PAUSED'
end
local vt = attributes(hash)
if not vt then
  return 'NOQUEUE'
end

allow_writes(zset)
local now = now_ms()
local hidden = string.format('%.0f', now + (ARGV[3] == '' and vt * 1000 or ARGV[3]))
local reply = { -1 }
for _, id in ipairs(redis.call('zrangebyscore', zset, '-inf', now, 'limit', 0, ARGV[2])) do
  local body = redis.call('hget', hash, id)
  if body then
    redis.call('zadd', zset, hidden, id)
    counted(hash, 'totalrecv', 1)
    local count = counted(hash, id .. ':rc', 1)
    redis.call('hsetnx', hash, id .. ':fr', string.format('%.0f', now))
    if consumer ~= '' then
      redis.call('hset', owners, id, consumer .. ' ' .. count)
      redis.call('zrem', unhandled, id)
    end
    local noted = redis.call('hmget', notes, id .. ':free', id .. ':alone', id .. ':story')
    local first = redis.call('hget', hash, id .. ':fr')
    for _, value in ipairs({ id, body, count, first, noted[1] or 0, noted[2] or '', noted[3] or '' }) do
      reply[#reply + 1] = value
    end
  else
    -- Half a message is left of one that somebody took apart by hand.
    redis.call('zrem', zset, id)
    redis.call('hdel', hash, id .. ':rc', id .. ':fr')
  end
end
reply[1] = next_visible(zset, now)
return reply
