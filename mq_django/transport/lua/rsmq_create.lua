-- Create an RSMQ queue.
--
-- KEYS[1]  hash     {namespace}:<queue>:Q   HASH
-- KEYS[2]  names    {namespace}:QUEUES      SET
-- ARGV[1]  queue
-- ARGV[2]  vt       seconds
-- ARGV[3]  delay    seconds
-- ARGV[4]  maxsize  UTF-16 units, or -1
--
-- Returns 'CREATED', or 'EXISTS': nothing is written. A hash without all attributes is not a queue: some clients leave
-- one behind when they set an attribute of a queue that does not exist.

-- with types
-- with clock
-- with rsmq
check_types({ [KEYS[1]] = 'hash', [KEYS[2]] = 'set' })
if attributes(KEYS[1]) then
  return 'EXISTS'
end
local now = math.floor(now_ms() / 1000)
redis.call('hset', KEYS[1], 'vt', ARGV[2], 'delay', ARGV[3], 'maxsize', ARGV[4], 'created', now, 'modified', now)
redis.call('sadd', KEYS[2], ARGV[1])
return 'CREATED'
