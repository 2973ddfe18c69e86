-- Move deliveries of a topic's log to their group's `due`, for another attempt.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  due        {topic}:g:<group>:due         ZSET     score: due time, ms
-- KEYS[4]  waiting    {topic}:g:<group>:waiting     HASH     member -> body
-- KEYS[5]  minutes    {topic}:g:<group>:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[6]  hours      {topic}:g:<group>:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  channel    gets the new first due time
-- then for each delivery: the receipt, the message's id, ms from now, the body
-- then optionally counters: see parts/counted
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with log_receipts
-- with retry
local log, control, due, waiting, minutes, hours = unpack(KEYS)
local counters = take_counters(ARGV, minutes, hours)
return counted(log_receipts(log, control, ARGV[1], ARGV[2]), counters, retry, due, waiting, ARGV)
