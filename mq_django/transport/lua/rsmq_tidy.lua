-- Look at an RSMQ queue, and forget some of what we keep beside messages that others have received or deleted.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  control    {namespace}:<queue>:mq:control     HASH   paused, and how far tidying has come
-- KEYS[4]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[5]  notes      {namespace}:<queue>:mq:notes       HASH   id:free and others
-- KEYS[6]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[7]  retried    {namespace}:<queue>:mq:retried     ZSET   score: when visible, ms
-- ARGV[1]  count      of each, about
--
-- Returns {ms until the next message can be seen or -1, 1 if paused, unhandled messages}.

-- with clock
-- with rsmq
local zset, hash, control, owners, notes, unhandled, retried = unpack(KEYS)
local now = now_ms()

-- Go on where the last call stopped, so that each of a large number has its turn.
local function tidy(command, key, step, forget)
  if redis.call('exists', key) == 0 then
    return
  end
  local field = 'tidy-' .. command .. step
  local cursor = redis.call('hget', control, field) or '0'
  local found = redis.call(command, key, cursor, 'count', ARGV[1])
  redis.call('hset', control, field, found[1])
  for at = 1, #found[2], 2 do
    forget(found[2][at], found[2][at + 1])
  end
end

tidy('hscan', owners, 1, function(id, value)
  if not redis.call('zscore', zset, id) or redis.call('hget', hash, id .. ':rc') ~= string.match(value, '%d+$') then
    redis.call('hdel', owners, id)
  end
end)
tidy('hscan', notes, 2, function(field)
  if not redis.call('zscore', zset, string.match(field, '^(.*):%a+$') or '') then
    redis.call('hdel', notes, field)
  end
end)
tidy('zscan', unhandled, 3, function(id)
  if not redis.call('zscore', zset, id) then
    redis.call('zrem', unhandled, id)
  end
end)
redis.call('zremrangebyscore', retried, '-inf', now)

local paused = redis.call('hget', control, 'paused') == '1' and 1 or 0
return { next_visible(zset, now), paused, redis.call('zcard', unhandled) }
