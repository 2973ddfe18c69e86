-- Move deliveries to the dead-letter queue.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- KEYS[2]  dead       {queue}:dead               STREAM
-- KEYS[3]  dead ids   {queue}:dead-ids           HASH   message id -> entry of `dead`
-- KEYS[4]  groups     {queue}:dead-groups        HASH   see parts/dead_groups
-- KEYS[5]  notes      {queue}:step-notes         HASH   see parts/step_notes
-- KEYS[6]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[7]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the number of fields and values, and these
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with bury
-- with counted
-- with stream_receipts
local stream, dead, ids, groups, notes, minutes, hours = unpack(KEYS)
local counters = take_counters(ARGV, minutes, hours)
return counted(stream_receipts(stream, ARGV[1], ARGV[2]), counters, bury, dead, ids, groups, usable_notes(notes), ARGV, 3)
