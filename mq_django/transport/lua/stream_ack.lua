-- Settle deliveries that are done.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the ids of the entries
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

-- with settle
-- with stream_receipts
return settle_done(stream_receipts(KEYS[1], ARGV[1], ARGV[2], #ARGV), ARGV, 3)
