-- Read a page of waiting messages, with their bodies.
--
-- KEYS[1]  waiters   {queue}:due or :unhandled   ZSET
-- KEYS[2]  waiting   {queue}:waiting             HASH   member -> body
-- ARGV[1]  first     rank
-- ARGV[2]  last      rank
-- ARGV[3]  bytes     a longer body is replaced by its length
--
-- Returns {now in ms, number of messages, then for each of the page: member, score, body or its length, or -1 for
-- none}.

-- with clock
-- with listed_bodies
local reply = { now_ms(), redis.call('zcard', KEYS[1]) }
local page = redis.call('zrange', KEYS[1], ARGV[1], ARGV[2], 'withscores')
return add_bodies(reply, KEYS[2], page, ARGV[3])
