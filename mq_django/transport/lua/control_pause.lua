-- Hand out nothing more of a queue, and tell its supervisors at once.
--
-- KEYS[1]  control   {queue}:control   HASH
-- ARGV[1]  wake      channel
--
-- Returns 'PAUSED', or 'WAS_PAUSED' when it was before; the supervisors are told either way.

-- with types
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end

local before = redis.call('hget', KEYS[1], 'paused')
redis.call('hset', KEYS[1], 'paused', '1')
redis.call('publish', ARGV[1], 'paused')
return before == '1' and 'WAS_PAUSED' or 'PAUSED'
