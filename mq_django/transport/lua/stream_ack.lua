-- Acknowledge handled deliveries, and delete their entries.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the ids of the entries
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with settle
-- with stream_receipts
return settle_done(stream_receipts(KEYS[1], ARGV[1], ARGV[2], #ARGV), ARGV, 3)
