-- Say that a supervisor lives, and see who else does.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- KEYS[2]  control      {queue}:control     HASH
-- KEYS[3]  and on       the streams that deliveries are read from
-- ARGV[1]  group
-- ARGV[2]  supervisor
-- ARGV[3]  generation   that it knows this queue by; '' at its first beat
-- ARGV[4]  token        to be the generation of a queue that has none
-- then fields and values that say what it and its consumers are
--
-- Returns {generation, all of `consumers`, unknown}; unknown are names and oldest entries ('' for none) of consumers of
-- the streams that are not in `consumers`. Or 'EVICTED': others took the supervisor for dead; nothing was written.

-- with types
local wrong = wrong_type({ [KEYS[1]] = 'hash', [KEYS[2]] = 'hash' })
if wrong then
  return wrong
end
-- A flush takes the generation along: then a supervisor that is missing was not evicted but forgotten.
local generation = redis.call('hget', KEYS[2], 'generation')
if generation and generation == ARGV[3] and redis.call('hexists', KEYS[1], 'beat:' .. ARGV[2]) == 0 then
  return 'EVICTED'
end

-- with counted
-- First a write that is allowed when memory is out: it lets the others through, and a silent supervisor counts as dead.
redis.call('hdel', KEYS[2], '')
if not generation then
  generation = ARGV[4]
  redis.call('hset', KEYS[2], 'generation', generation)
end
local time = redis.call('time')
counted(KEYS[1], 'beat:' .. ARGV[2], 1)
redis.call('hset', KEYS[1], 'seen:' .. ARGV[2], time[1] * 1000 + math.floor(time[2] / 1000), unpack(ARGV, 5))

local unknown = {}
for i = 3, #KEYS do
  local consumers = redis.pcall('xinfo', 'consumers', KEYS[i], ARGV[1])
  for _, consumer in ipairs(consumers.err and {} or consumers) do
    -- Name and count of the pending come second and fourth in every version.
    local name, pending = consumer[2], consumer[4]
    if redis.call('hexists', KEYS[1], 'consumer:' .. name) == 0 then
      unknown[#unknown + 1] = name
      unknown[#unknown + 1] = pending > 0 and redis.call('xpending', KEYS[i], ARGV[1], '-', '+', 1, name)[1][1] or ''
    end
  end
end
return { generation, redis.call('hgetall', KEYS[1]), unknown }
