-- Open a partition after the number of partitions was changed, or close it for good if it is none any more.
--
-- KEYS[1]  control   {queue.p.x}:control   HASH
-- KEYS[2]  moving    {queue.p.x}:moving    STREAM   see repartition_take
-- KEYS[3]  arrived   {queue.p.x}:arrived   HASH     see repartition_put
-- KEYS[4]  asleep    {queue.p.x}:asleep    STRING
-- ARGV[1]  number    of partitions: who knows another one cannot publish
-- ARGV[2]  wake      channel
-- ARGV[3]  arrivals  channel on which consumers wait
-- ARGV[4]  paused    '1' if consumers are to take nothing yet, else '0'
-- ARGV[5..8]         by whom, why, since when, and the name of the action
--
-- Returns 'OPENED', or 'MOVING' while messages are on their way from here: nothing is written.

-- with types
local control, moving, arrived, asleep = unpack(KEYS)
check_types({ [control] = 'hash', [moving] = 'stream', [arrived] = 'hash' })
if redis.call('xlen', moving) > 0 then
  return 'MOVING'
end

redis.call('hset', control, 'partitions', ARGV[1])
if ARGV[4] == '1' then
  redis.call('hset', control, 'paused', '1', 'paused-by', ARGV[5], 'paused-reason', ARGV[6], 'paused-at', ARGV[7])
  redis.call('hset', control, 'paused-name', ARGV[8])
else
  redis.call('hdel', control, 'paused', 'paused-by', 'paused-reason', 'paused-at', 'paused-name')
end
redis.call('del', moving, arrived, asleep)
redis.call('publish', ARGV[2], ARGV[4] == '1' and 'paused' or 'resumed')
redis.call('publish', ARGV[3], 'ready')
return 'OPENED'
