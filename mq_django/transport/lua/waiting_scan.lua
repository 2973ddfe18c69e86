-- Read some members of a sorted set with their bodies, in no order. A scan from cursor '0' to cursor '0' returns each
-- member that is there all the time, whatever is added or removed meanwhile.
--
-- KEYS[1]  waiters   {queue}:due, :unhandled, :parked or :priority   ZSET
-- KEYS[2]  waiting   {queue}:waiting                                 HASH   member -> body
-- ARGV[1]  cursor
-- ARGV[2]  count     members, about
-- ARGV[3]  bytes     a longer body is replaced by its length
--
-- Returns {next cursor, then for each: member, score, body or its length, or -1 for none}.

-- with listed_bodies
local found = redis.call('zscan', KEYS[1], ARGV[1], 'count', ARGV[2])
return add_bodies({ found[1] }, KEYS[2], found[2], ARGV[3])
