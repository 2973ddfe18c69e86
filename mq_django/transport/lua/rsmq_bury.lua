-- Move deliveries of an RSMQ queue to the dead-letter queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- KEYS[5]  dead       {namespace}:<queue>:mq:dead        STREAM
-- KEYS[6]  dead ids   {namespace}:<queue>:mq:dead-ids    HASH   message id -> entry of `dead`
-- KEYS[7]  groups     {namespace}:<queue>:mq:dead-groups HASH   see parts/dead_groups
-- KEYS[8]  minutes    {namespace}:<queue>:mq:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[9]  hours      {namespace}:<queue>:mq:counters:h:<day>    HASH     counters
-- ARGV[1]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the number of fields and values of the dead letter, and these;
-- the script adds the raw body, which a redrive puts back
-- then optionally counters: see parts/counted
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with bury
-- with counted
-- with rsmq_receipts
-- with types
local zset, hash, owners, notes, dead, ids, groups, minutes, hours = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash' })
if wrong then
  return wrong
end
local counters = take_counters(ARGV, minutes, hours)
return counted(last_receipts(zset, hash, owners, notes, ARGV[1]), counters, bury, dead, ids, groups, nil, ARGV, 2)
