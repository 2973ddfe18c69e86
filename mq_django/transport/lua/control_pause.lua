-- Pause or resume a queue, and notify its supervisors. One that is paused keeps who paused it, why, since when, and the
-- name of the action.
--
-- KEYS[1]  control   {queue}:control   HASH
-- ARGV[1]  wake      channel
-- ARGV[2]  pauses    '1', or '0' to resume it
-- ARGV[3]  who       pauses it
-- ARGV[4]  reason
-- ARGV[5]  name      of an action on several queues, '' for none. Only a queue that the action of this name has paused
--                    is resumed; with '' any is
--
-- Returns 'CHANGED' or 'SAME'; the supervisors are notified unless another action has paused the queue.

-- with types
-- with clock
local control, pauses, name = KEYS[1], ARGV[2] == '1', ARGV[5] or ''
check_types({ [control] = 'hash' })

local paused, known = unpack(redis.call('hmget', control, 'paused', 'paused-name'))
local was_paused = paused == '1'
if not pauses then
  if name ~= '' and known ~= name then
    return 'SAME'
  end
  redis.call('hdel', control, 'paused', 'paused-by', 'paused-reason', 'paused-at', 'paused-name')
elseif not was_paused then
  local now = string.format('%.0f', now_ms())
  redis.call('hset', control, 'paused', '1', 'paused-by', ARGV[3], 'paused-reason', ARGV[4], 'paused-at', now)
  redis.call('hset', control, 'paused-name', name)
end
redis.call('publish', ARGV[1], pauses and 'paused' or 'resumed')
return pauses == was_paused and 'SAME' or 'CHANGED'
