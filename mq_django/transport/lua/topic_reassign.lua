-- Reassign deliveries of a topic's log to another consumer, or extend them if it is the same one.
-- No attempt is counted.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  new owner
-- then the receipts: `<entry>@<generation>`
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with log_receipts
-- with settle
return reassign(log_receipts(KEYS[1], KEYS[2], ARGV[1], ARGV[2], #ARGV), ARGV[3], ARGV, 4)
