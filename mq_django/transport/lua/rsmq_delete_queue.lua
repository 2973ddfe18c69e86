-- Delete an RSMQ queue with all keys of ours but its dead letters.
--
-- KEYS[1]  zset      {namespace}:<queue>     ZSET
-- KEYS[2]  hash      {namespace}:<queue>:Q   HASH
-- KEYS[3]  names     {namespace}:QUEUES      SET
-- KEYS[4]  and on    {namespace}:<queue>:mq:...
-- ARGV[1]  queue
--
-- Returns 'DELETED' or 'NOQUEUE'.

local removed = redis.call('del', KEYS[2])
redis.call('unlink', KEYS[1], unpack(KEYS, 4))
redis.call('srem', KEYS[3], ARGV[1])
return removed == 1 and 'DELETED' or 'NOQUEUE'
