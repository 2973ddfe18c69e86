-- Read the state of an RSMQ queue, and remove records of ours about messages that other programs received or deleted.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  control    {namespace}:<queue>:mq:control     HASH   paused, and the cursors of the clean-up
-- KEYS[4]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[5]  notes      {namespace}:<queue>:mq:notes       HASH   id:free and more
-- KEYS[6]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[7]  retried    {namespace}:<queue>:mq:retried     ZSET   score: when visible, ms
-- ARGV[1]  count      records to check per key, about
--
-- Returns {ms until the next message is visible or -1, 1 if paused, unhandled messages}.

-- with clock
-- with rsmq
local zset, hash, control, owners, notes, unhandled, retried = unpack(KEYS)
local now = now_ms()

-- Continue where the last call stopped, so that all records are checked in the end.
local function clean_up(command, key, step, check)
  if redis.call('exists', key) == 0 then
    return
  end
  local field = 'tidy-' .. command .. step
  local cursor = redis.call('hget', control, field) or '0'
  local found = redis.call(command, key, cursor, 'count', ARGV[1])
  redis.call('hset', control, field, found[1])
  for at = 1, #found[2], 2 do
    check(found[2][at], found[2][at + 1])
  end
end

clean_up('hscan', owners, 1, function(id, value)
  if not redis.call('zscore', zset, id) or redis.call('hget', hash, id .. ':rc') ~= string.match(value, '%d+$') then
    redis.call('hdel', owners, id)
  end
end)
clean_up('hscan', notes, 2, function(field)
  if not redis.call('zscore', zset, string.match(field, '^(.*):%a+$') or '') then
    redis.call('hdel', notes, field)
  end
end)
clean_up('zscan', unhandled, 3, function(id)
  if not redis.call('zscore', zset, id) then
    redis.call('zrem', unhandled, id)
  end
end)
redis.call('zremrangebyscore', retried, '-inf', now)

local paused = redis.call('hget', control, 'paused') == '1' and 1 or 0
return { next_visible(zset, now), paused, redis.call('zcard', unhandled) }
