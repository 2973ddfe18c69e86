-- Move deliveries of a topic's log to the dead-letter queue of their group.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  dead       {topic}:g:<group>:dead        STREAM
-- KEYS[4]  dead ids   {topic}:g:<group>:dead-ids    HASH     message id -> entry of `dead`
-- KEYS[5]  groups     {topic}:g:<group>:dead-groups HASH     see parts/dead_groups
-- KEYS[6]  minutes    {topic}:g:<group>:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[7]  hours      {topic}:g:<group>:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the number of fields and values, and these
-- then optionally counters: see parts/counted
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with bury
-- with counted
-- with log_receipts
local log, control, dead, ids, groups, minutes, hours = unpack(KEYS)
local counters = take_counters(ARGV, minutes, hours)
return counted(log_receipts(log, control, ARGV[1], ARGV[2]), counters, bury, dead, ids, groups, nil, ARGV, 3)
