-- Close a partition while the number of partitions is changed: it accepts no messages, and consumers take none.
--
-- KEYS[1]  control   {queue.p.x}:control   HASH   `partitions`, `repartition:change`
-- ARGV[1]  change    its number
-- ARGV[2]  wake      channel
-- ARGV[3]  who       shown while it is paused
-- ARGV[4]  reason
--
-- Returns 'CLOSED', or 'LATE' if this change or a later one is done: nothing is written. A partition that is paused stays
-- so.

-- with types
-- with clock
-- with numbers
local control = KEYS[1]
check_types({ [control] = 'hash' })

local change, known = tonumber(ARGV[1]), number_of(redis.call('hget', control, 'repartition:change'))
local is_closed = redis.call('hget', control, 'partitions') == 'closed'
if known > change or known == change and not is_closed then
  return 'LATE'
end
redis.call('hset', control, 'partitions', 'closed', 'repartition:change', ARGV[1])
if redis.call('hget', control, 'paused') ~= '1' then
  local now = string.format('%.0f', now_ms())
  redis.call('hset', control, 'paused', '1', 'paused-by', ARGV[3], 'paused-reason', ARGV[4], 'paused-at', now)
end
redis.call('publish', ARGV[2], 'paused')
return 'CLOSED'
