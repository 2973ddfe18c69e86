-- Acknowledge handled deliveries of a topic's log.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the receipts: `<entry>@<generation>`
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with log_receipts
-- with settle
return settle_done(log_receipts(KEYS[1], KEYS[2], ARGV[1], ARGV[2], #ARGV), ARGV, 3)
