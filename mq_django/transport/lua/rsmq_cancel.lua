-- Remove a message of an RSMQ queue that nobody has.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  notes      {namespace}:<queue>:mq:notes       HASH
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried     ZSET   as in zset: with the same score, nobody has it
-- ARGV[1]  id
--
-- Returns 'CANCELLED', or 'MISSING' when it does not wait: it can be seen by now, somebody has it, or it was never there.

-- with clock
-- with rsmq_messages
-- with rsmq_waits
local zset, hash, notes, unhandled, retried = unpack(KEYS)
local id = ARGV[1]
if not waits(zset, hash, unhandled, retried, id) then
  return 'MISSING'
end
remove_message(zset, hash, notes, id)
redis.call('zrem', unhandled, id)
redis.call('zrem', retried, id)
return 'CANCELLED'
