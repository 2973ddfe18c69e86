-- Remove a waiting message of an RSMQ queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  notes      {namespace}:<queue>:mq:notes       HASH
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried     ZSET   score as in zset: the message waits for a retry
-- ARGV[1]  id
--
-- Returns 'CANCELLED', or 'MISSING' when it does not wait: it is visible, was received, or does not exist.

-- with clock
-- with rsmq_messages
-- with rsmq_states
local zset, hash, notes, unhandled, retried = unpack(KEYS)
local id = ARGV[1]
if not state_of(zset, hash, unhandled, retried, id) then
  return 'MISSING'
end
remove_message(zset, hash, notes, id)
redis.call('zrem', unhandled, id)
redis.call('zrem', retried, id)
return 'CANCELLED'
