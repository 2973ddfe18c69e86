-- Pause a queue and notify its supervisors.
--
-- KEYS[1]  control   {queue}:control   HASH
-- ARGV[1]  wake      channel
--
-- Returns 'PAUSED', or 'WAS_PAUSED' if it was paused before; the supervisors are notified in both cases.

-- with types
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end

local before = redis.call('hget', KEYS[1], 'paused')
redis.call('hset', KEYS[1], 'paused', '1')
redis.call('publish', ARGV[1], 'paused')
return before == '1' and 'WAS_PAUSED' or 'PAUSED'
