-- Find a waiting message of an RSMQ queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[4]  retried    {namespace}:<queue>:mq:retried     ZSET   score as in zset: the message waits for a retry
-- KEYS[5]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts
-- ARGV[1]  id
--
-- Returns {'DELAYED' or 'UNHANDLED', score, body, receive count, receives that are no attempts}; or 'MISSING'.

-- with clock
-- with rsmq_states
local zset, hash, unhandled, retried, notes = unpack(KEYS)
local id = ARGV[1]
local state = state_of(zset, hash, unhandled, retried, id)
if not state then
  return 'MISSING'
end
return {
  state,
  redis.call('zscore', zset, id),
  redis.call('hget', hash, id) or '',
  redis.call('hget', hash, id .. ':rc') or 0,
  redis.call('hget', notes, id .. ':free') or 0,
}
