-- Remove a group of a topic with all its keys.
--
-- KEYS[1]  log      {topic}:log   STREAM
-- KEYS[2]  and on   every key of the group
-- ARGV[1]  group
--
-- Returns 'REMOVED', or 'MISSING' when the group did not exist.

local removed = redis.call('exists', KEYS[1]) == 1 and redis.call('xgroup', 'destroy', KEYS[1], ARGV[1]) or 0
redis.call('unlink', unpack(KEYS, 2))
return removed == 1 and 'REMOVED' or 'MISSING'
