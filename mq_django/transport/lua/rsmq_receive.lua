-- Receive the oldest visible messages of an RSMQ queue, and hide them.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- KEYS[5]  control    {namespace}:<queue>:mq:control     HASH   paused
-- KEYS[6]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[7]  consumers  {namespace}:<queue>:mq:consumers   HASH   which are quarantines
-- ARGV[1]  consumer   '' for a receiver that is not recorded as owner and ignores a pause
-- ARGV[2]  count      messages, at most 500
-- ARGV[3]  vt         ms to hide them, or '' for the queue's own vt
--
-- Returns {ms until the next is visible or -1, then for each message: id, body, receive count, when it was first
-- received, receives that are no attempts, '1' or 'suspect' if it must run alone, its attempt history}; or 'PAUSED' or
-- 'NOQUEUE'.

-- with clock
-- with rsmq
-- with lists
-- with numbers
local zset, hash, owners, notes, control, unhandled, consumers = unpack(KEYS)
local consumer = ARGV[1]
if consumer ~= '' and redis.call('hget', control, 'paused') == '1' then
  return 'PAUSED'
end
local vt = attributes(hash)
if not vt then
  return 'NOQUEUE'
end

-- Return whether a consumer is a quarantine, which holds only what it runs.
local function is_quarantine(name)
  local is_done, described = pcall(cjson.decode, short(redis.pcall('hget', consumers, 'consumer:' .. name)))
  return is_done and type(described) == 'table' and described.quarantine == true
end

-- A message that still has an owner was received before, and not settled: its machine failed, or had no connection for
-- longer than vt.
local function note_unsettled(id)
  local owner = redis.call('hget', owners, id)
  local before = owner and string.match(owner, '^(.*) %d+$')
  if before and is_quarantine(before) then
    note_crashed(notes, id)
  elseif before then
    note_lost(notes, id)
  end
end

allow_writes(zset)
local now = now_ms()
local hidden = string.format('%.0f', now + (ARGV[3] == '' and vt * 1000 or ARGV[3]))
local reply = { -1 }
for _, id in ipairs(redis.call('zrangebyscore', zset, '-inf', now, 'limit', 0, ARGV[2])) do
  local body = redis.call('hget', hash, id)
  if body then
    redis.call('zadd', zset, hidden, id)
    increment(hash, 'totalrecv', 1)
    local count = increment(hash, id .. ':rc', 1)
    redis.call('hsetnx', hash, id .. ':fr', string.format('%.0f', now))
    if consumer ~= '' then
      if count ~= 1 then
        note_unsettled(id)
      end
      redis.call('hset', owners, id, consumer .. ' ' .. count)
      redis.call('zrem', unhandled, id)
    end
    local marks = redis.call('hmget', notes, id .. ':free', id .. ':alone', id .. ':story')
    local first = redis.call('hget', hash, id .. ':fr')
    add_all(reply, id, body, count, first, marks[1] or 0, marks[2] or '', marks[3] or '')
  else
    -- The rest of a message that was deleted by hand.
    redis.call('zrem', zset, id)
    redis.call('hdel', hash, id .. ':rc', id .. ':fr')
  end
end
reply[1] = next_visible(zset, now)
return reply
