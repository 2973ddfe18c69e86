-- Begin to report for a run of a message's handler, in place of any earlier run, and read the saved positions. Those of
-- a run with another digest are deleted: somebody has edited the message, or published another one under its id.
--
-- KEYS[1]  progress   {queue}:progress:<id>   HASH   run, data, progress, positions
-- ARGV[1]  run        identifies the run
-- ARGV[2]  time to live, ms
-- ARGV[3]  digest     of the message's time and data
--
-- Returns the positions as JSON text; or false if there are none, or they have more than 65,536 bytes.

-- with types
local key = KEYS[1]
check_types({ [key] = 'hash' })
-- First a write that Redis allows when memory is out. The writes after it are then allowed, too.
redis.call('hdel', key, redis.call('hget', key, 'data') == ARGV[3] and '' or 'positions')
redis.call('hset', key, 'run', ARGV[1], 'data', ARGV[3])
redis.call('pexpire', key, ARGV[2])
return redis.call('hstrlen', key, 'positions') <= 65536 and redis.call('hget', key, 'positions')
