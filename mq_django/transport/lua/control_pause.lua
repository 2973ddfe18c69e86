-- Pause or resume a queue, and notify its supervisors. One that is paused keeps who paused it, why and since when.
--
-- KEYS[1]  control   {queue}:control   HASH
-- ARGV[1]  wake      channel
-- ARGV[2]  pauses    '1', or '0' to resume it
-- ARGV[3]  who
-- ARGV[4]  reason
--
-- Returns 'CHANGED' or 'SAME'; the supervisors are notified in both cases.

-- with types
-- with clock
local control, pauses = KEYS[1], ARGV[2] == '1'
check_types({ [control] = 'hash' })

local was_paused = redis.call('hget', control, 'paused') == '1'
if not pauses then
  redis.call('hdel', control, 'paused', 'paused-by', 'paused-reason', 'paused-at')
elseif not was_paused then
  local now = string.format('%.0f', now_ms())
  redis.call('hset', control, 'paused', '1', 'paused-by', ARGV[3], 'paused-reason', ARGV[4], 'paused-at', now)
end
redis.call('publish', ARGV[1], pauses and 'paused' or 'resumed')
return pauses == was_paused and 'SAME' or 'CHANGED'
