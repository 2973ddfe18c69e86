-- Pause a queue and notify its supervisors. A queue that is paused keeps who paused it, why and since when.
--
-- KEYS[1]  control   {queue}:control   HASH
-- ARGV[1]  wake      channel
-- ARGV[2]  who
-- ARGV[3]  reason
--
-- Returns 'PAUSED', or 'WAS_PAUSED' if it was paused before; the supervisors are notified in both cases.

-- with types
-- with clock
check_types({ [KEYS[1]] = 'hash' })

local before = redis.call('hget', KEYS[1], 'paused')
if before ~= '1' then
  local now = string.format('%.0f', now_ms())
  redis.call('hset', KEYS[1], 'paused', '1', 'paused-by', ARGV[2], 'paused-reason', ARGV[3], 'paused-at', now)
end
redis.call('publish', ARGV[1], 'paused')
return before == '1' and 'WAS_PAUSED' or 'PAUSED'
