-- Remove a message that waits.
--
-- KEYS[1]  due        {queue}:due         ZSET
-- KEYS[2]  unhandled  {queue}:unhandled   ZSET
-- KEYS[3]  waiting    {queue}:waiting     HASH   member -> body
-- KEYS[4]  unique     {queue}:unique      HASH   unique member -> id
-- ARGV[1]  member     the message's id, or 'u:' and its unique key
--
-- Returns 'CANCELLED', or 'MISSING' when it does not wait: it is ready by now, or was never there.

local removed = redis.call('zrem', KEYS[1], ARGV[1]) + redis.call('zrem', KEYS[2], ARGV[1])
redis.call('hdel', KEYS[3], ARGV[1])
redis.call('hdel', KEYS[4], ARGV[1])
return removed > 0 and 'CANCELLED' or 'MISSING'
