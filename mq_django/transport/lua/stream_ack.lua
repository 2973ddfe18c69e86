-- Acknowledge handled deliveries, and delete their entries.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- KEYS[2]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[3]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the ids of the entries
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with settle
-- with stream_receipts
local counters = take_counters(ARGV, KEYS[2], KEYS[3])
return counted(stream_receipts(KEYS[1], ARGV[1], ARGV[2], #ARGV), counters, settle_done, ARGV, 3)
