-- Move deliveries that no consumer can handle to `unhandled`. No attempt is counted.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- KEYS[2]  unhandled  {queue}:unhandled          ZSET   score: hash of the name
-- KEYS[3]  waiting    {queue}:waiting            HASH   member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the score, the body
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with set_aside
-- with stream_receipts
local stream, unhandled, waiting = unpack(KEYS)
return set_aside(stream_receipts(stream, ARGV[1], ARGV[2]), unhandled, waiting, ARGV)
