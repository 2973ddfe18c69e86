-- Let a group pass over the next messages of its topic's log, which stay there for the other groups.
--
-- KEYS[1]  log       {topic}:log   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer  a name that nobody has
-- ARGV[3]  limit     messages, at most 500
--
-- Returns how many were passed over.

-- Read and not held, so that Redis goes on to know how many the group has read.
local read = redis.call('xreadgroup', 'group', ARGV[1], ARGV[2], 'count', ARGV[3], 'noack', 'streams', KEYS[1], '>')
redis.call('xgroup', 'delconsumer', KEYS[1], ARGV[1], ARGV[2])
return read and #read[1][2] or 0
