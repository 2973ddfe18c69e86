-- Give deliveries of a topic's log up: to the dead letters of their group.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  dead       {topic}:g:<group>:dead        STREAM
-- KEYS[4]  dead ids   {topic}:g:<group>:dead-ids    HASH     message id -> entry of `dead`
-- KEYS[5]  groups     {topic}:g:<group>:dead-groups HASH     see parts/groups
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the number of fields and values, and these
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with bury
-- with log_receipts
local log, control, dead, ids, groups = unpack(KEYS)
return bury(log_receipts(log, control, ARGV[1], ARGV[2]), dead, ids, groups, ARGV, 3)
