-- Take the turn to look at the groups of a topic, which costs Redis time: of all who would, one does.
--
-- KEYS[1]  control  {topic}:control   HASH   looked: when somebody took the turn last, ms
-- ARGV[1]  pause    ms until the next
--
-- Returns 1, or 0 when somebody else has it.

-- with types
-- with clock
-- with numbers
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end
local now = now_ms()
local ago = now - number_of(redis.call('hget', KEYS[1], 'looked'))
-- In the future it is when a clock was set back.
if ago >= 0 and ago < tonumber(ARGV[1]) then
  return 0
end
-- A write that is allowed when memory is out: after it the others are, and a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
redis.call('hset', KEYS[1], 'looked', string.format('%.0f', now))
return 1
