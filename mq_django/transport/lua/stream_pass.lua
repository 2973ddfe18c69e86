-- Pass deliveries on from one consumer to another, uncounted; or to itself, to keep them its own.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  new owner  holds them from now on
-- then the ids of the entries
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

-- with settle
-- with stream_receipts
return pass_on(stream_receipts(KEYS[1], ARGV[1], ARGV[2], #ARGV), ARGV[3], ARGV, 4)
