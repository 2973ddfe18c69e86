-- Put a dead letter back into its RSMQ queue with another body, as a new message.
--
-- KEYS[1]  dead      {namespace}:<queue>:mq:dead          STREAM
-- KEYS[2]  dead ids  {namespace}:<queue>:mq:dead-ids      HASH    message id -> entry of `dead`
-- KEYS[3]  groups    {namespace}:<queue>:mq:dead-groups   HASH    see parts/dead_letters
-- KEYS[4]  zset      {namespace}:<queue>                  ZSET    score: when visible, ms
-- KEYS[5]  hash      {namespace}:<queue>:Q                HASH    attributes, bodies, counts
-- ARGV[1]  entry     of `dead`
-- ARGV[2]  id        of the new message
-- ARGV[3]  body
-- ARGV[4]  channel   gets the new first time at which a message is visible
--
-- Returns 'RESUBMITTED', 'MISSING' when it no longer exists, or 'UNDECODABLE' when it is not a valid message.

-- with types
-- with clock
-- with dead_letters
-- with numbers
local dead, ids, groups, zset, hash = unpack(KEYS)
check_types({ [dead] = 'stream', [ids] = 'hash', [zset] = 'zset', [hash] = 'hash' })

local found = redis.call('xrange', dead, ARGV[1], ARGV[1])[1]
if not found then
  return 'MISSING'
end
local _, values = message_fields(found[2], {})
if values.deadraw then
  return 'UNDECODABLE'
end
local now = string.format('%.0f', now_ms())
redis.call('zadd', zset, now, ARGV[2])
redis.call('hset', hash, ARGV[2], ARGV[3])
increment(hash, 'totalsent', 1)
remove_dead_letter(dead, ids, ARGV[1], found[2])
uncount_removed(groups)
redis.call('publish', ARGV[4], 'due ' .. now)
return 'RESUBMITTED'
