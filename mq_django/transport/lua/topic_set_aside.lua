-- Move deliveries of a topic's log that no consumer can handle to `unhandled`. No attempt is counted.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  unhandled  {topic}:g:<group>:unhandled   ZSET     score: hash of the name
-- KEYS[4]  waiting    {topic}:g:<group>:waiting     HASH     member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the score, the body
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with log_receipts
-- with set_aside
local log, control, unhandled, waiting = unpack(KEYS)
return set_aside(log_receipts(log, control, ARGV[1], ARGV[2]), unhandled, waiting, ARGV)
