-- Move deliveries of a topic's log to their group's `due`, for another attempt.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  due        {topic}:g:<group>:due         ZSET     score: due time, ms
-- KEYS[4]  waiting    {topic}:g:<group>:waiting     HASH     member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  channel    gets the new first due time
-- then for each delivery: the receipt, the message's id, ms from now, the body
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with log_receipts
-- with retry
local log, control, due, waiting = unpack(KEYS)
return retry(log_receipts(log, control, ARGV[1], ARGV[2]), due, waiting, ARGV)
