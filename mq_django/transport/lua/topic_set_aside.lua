-- Take deliveries of a topic's log that nobody here can handle out of the way, uncharged.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  unhandled  {topic}:g:<group>:unhandled   ZSET     score: the name's hash
-- KEYS[4]  waiting    {topic}:g:<group>:waiting     HASH     member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the score, the body
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with log_receipts
-- with set_aside
local log, control, unhandled, waiting = unpack(KEYS)
return set_aside(log_receipts(log, control, ARGV[1], ARGV[2]), unhandled, waiting, ARGV)
