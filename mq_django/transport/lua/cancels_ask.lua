-- Ask consumers to cancel a message that does not wait: it is not started, and its running handler is interrupted.
--
-- KEYS[1]  cancels    {queue}:cancels     ZSET   ids for a day; score: when, ms, and half a ms more with 'force'
-- KEYS[2]  claims     {queue}:claims      HASH   claims of unique keys
-- KEYS[3]  consumers  {queue}:consumers   HASH   `cancels:asked` counts the requests
-- ARGV[1]  id         the message's id, or 'u:' and its unique key
-- ARGV[2]  force      '1': its process is replaced if the handler cannot be interrupted; or ''
-- ARGV[3]  wake       channel
--
-- Returns 'ASKED', or 'MISSING' when no message claims the unique key. The supervisors are notified.

-- with types
-- with clock
-- with claims
-- with numbers
local cancels, claims, consumers = unpack(KEYS)
check_types({ [cancels] = 'zset', [claims] = 'hash', [consumers] = 'hash' })

local id = ARGV[1]
if string.sub(id, 1, 2) == 'u:' then
  id = claimed_by(claims, string.sub(id, 3))
  if not id then
    return 'MISSING'
  end
end
local now, before = now_ms(), redis.call('zscore', cancels, id)
local is_forced = ARGV[2] == '1' or (before and tonumber(before) % 1 > 0)
redis.call('zadd', cancels, string.format('%.1f', now + (is_forced and 0.5 or 0)), id)
redis.call('zremrangebyscore', cancels, '-inf', now - 86400000)
redis.call('zremrangebyrank', cancels, 0, -10001)
redis.call('expire', cancels, 86400)
-- Consumers that start later read all requests. The heartbeat of the others returns this field.
if redis.call('exists', consumers) == 1 then
  increment(consumers, 'cancels:asked', 1)
end
redis.call('publish', ARGV[3], 'cancels')
return 'ASKED'
