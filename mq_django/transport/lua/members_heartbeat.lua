-- Record a supervisor's heartbeat, and read all members.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- KEYS[2]  control      {queue}:control     HASH
-- KEYS[3]  and on       the streams from which deliveries are read
-- ARGV[1]  group
-- ARGV[2]  supervisor
-- ARGV[3]  generation   of the queue at its last heartbeat; '' at its first
-- ARGV[4]  token        becomes the generation of a queue that has none
-- then fields and values of `consumers`: the descriptions of the supervisor and its consumers
--
-- Returns {generation, all of `consumers`, unknown}; `unknown` has name and oldest entry ('' for none) of each consumer
-- of the streams that is not in `consumers`. Or 'EVICTED' when another supervisor declared this one dead: nothing is
-- written.

-- with types
check_types({ [KEYS[1]] = 'hash', [KEYS[2]] = 'hash' })
-- With the same generation a missing heartbeat means an eviction. After a flush of Redis the generation is missing,
-- too.
local generation = redis.call('hget', KEYS[2], 'generation')
if generation and generation == ARGV[3] and redis.call('hexists', KEYS[1], 'beat:' .. ARGV[2]) == 0 then
  return 'EVICTED'
end

-- with clock
-- with numbers
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: without heartbeats a
-- supervisor would be declared dead.
redis.call('hdel', KEYS[2], '')
if not generation then
  generation = ARGV[4]
  redis.call('hset', KEYS[2], 'generation', generation)
end
increment(KEYS[1], 'beat:' .. ARGV[2], 1)
redis.call('hset', KEYS[1], 'seen:' .. ARGV[2], now_ms(), unpack(ARGV, 5))

local unknown = {}
for i = 3, #KEYS do
  local consumers = redis.pcall('xinfo', 'consumers', KEYS[i], ARGV[1])
  for _, consumer in ipairs(consumers.err and {} or consumers) do
    -- Name and pending count are the second and fourth element in every version of Redis.
    local name, pending = consumer[2], consumer[4]
    if redis.call('hexists', KEYS[1], 'consumer:' .. name) == 0 then
      unknown[#unknown + 1] = name
      unknown[#unknown + 1] = pending > 0 and redis.call('xpending', KEYS[i], ARGV[1], '-', '+', 1, name)[1][1] or ''
    end
  end
end
return { generation, redis.call('hgetall', KEYS[1]), unknown }
