-- Settle deliveries of a topic's log that are done.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the receipts: `<entry>@<generation>`
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with log_receipts
-- with settle
return settle_done(log_receipts(KEYS[1], KEYS[2], ARGV[1], ARGV[2], #ARGV), ARGV, 3)
