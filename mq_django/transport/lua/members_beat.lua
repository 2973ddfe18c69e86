-- Say that a supervisor lives, and see who else does.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- ARGV[1]  supervisor
-- then fields and values that say what it and its consumers are
--
-- Returns all fields and values of `consumers`.

local time = redis.call('time')
redis.call('hincrby', KEYS[1], 'beat:' .. ARGV[1], 1)
redis.call('hset', KEYS[1], 'seen:' .. ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000), unpack(ARGV, 2))
return redis.call('hgetall', KEYS[1])
