-- Claim the next check of a topic's groups, so that only one process makes this costly check.
--
-- KEYS[1]  control  {topic}:control   HASH   looked: when a check was claimed last, ms
-- ARGV[1]  pause    ms until the next check
--
-- Returns 1, or 0 when another process has claimed it.

-- with types
-- with clock
-- with numbers
check_types({ [KEYS[1]] = 'hash' })
local now = now_ms()
local ago = now - number_of(redis.call('hget', KEYS[1], 'looked'))
-- Negative if the clock was set back.
if ago >= 0 and ago < tonumber(ARGV[1]) then
  return 0
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
redis.call('hset', KEYS[1], 'looked', string.format('%.0f', now))
return 1
