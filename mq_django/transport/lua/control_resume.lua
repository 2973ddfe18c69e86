-- Resume a paused queue and notify its supervisors.
--
-- KEYS[1]  control   {queue}:control   HASH
-- ARGV[1]  wake      channel
--
-- Returns 'RESUMED', or 'WAS_RUNNING' if it was not paused; the supervisors are notified in both cases.

-- with types
check_types({ [KEYS[1]] = 'hash' })

local before = redis.call('hget', KEYS[1], 'paused')
redis.call('hdel', KEYS[1], 'paused', 'paused-by', 'paused-reason', 'paused-at')
redis.call('publish', ARGV[1], 'resumed')
return before == '1' and 'RESUMED' or 'WAS_RUNNING'
