-- Move deliveries of a topic's log to the dead-letter queue of their group.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  dead       {topic}:g:<group>:dead        STREAM
-- KEYS[4]  dead ids   {topic}:g:<group>:dead-ids    HASH     message id -> entry of `dead`
-- KEYS[5]  groups     {topic}:g:<group>:dead-groups HASH     see parts/dead_groups
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the number of fields and values, and these
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with bury
-- with log_receipts
local log, control, dead, ids, groups = unpack(KEYS)
return bury(log_receipts(log, control, ARGV[1], ARGV[2]), dead, ids, groups, ARGV, 3)
