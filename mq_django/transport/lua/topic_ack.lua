-- Acknowledge handled deliveries of a topic's log.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  minutes    {topic}:g:<group>:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[4]  hours      {topic}:g:<group>:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the receipts: `<entry>@<generation>`
-- then optionally counters: see parts/counted
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with log_receipts
-- with settle
local log, control, minutes, hours = unpack(KEYS)
local counters = take_counters(ARGV, minutes, hours)
return counted(log_receipts(log, control, ARGV[1], ARGV[2], #ARGV), counters, settle_done, ARGV, 3)
