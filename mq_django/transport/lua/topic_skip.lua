-- Skip the next messages of a topic's log for one group. They stay in the log for the other groups.
--
-- KEYS[1]  log       {topic}:log   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer  a name that no consumer has
-- ARGV[3]  limit     messages, at most 500
--
-- Returns the number of skipped messages.

-- Reading with NOACK keeps Redis's count of entries read, on which its lag is based.
local read = redis.call('xreadgroup', 'group', ARGV[1], ARGV[2], 'count', ARGV[3], 'noack', 'streams', KEYS[1], '>')
redis.call('xgroup', 'delconsumer', KEYS[1], ARGV[1], ARGV[2])
return read and #read[1][2] or 0
