-- Move deliveries to `due`, for another attempt.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- KEYS[2]  due        {queue}:due                ZSET   score: due time, ms
-- KEYS[3]  waiting    {queue}:waiting            HASH   member -> body
-- KEYS[4]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[5]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  channel    gets the new first due time
-- then for each delivery: the entry's id, the message's id, ms from now, the body
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with retry
-- with stream_receipts
local stream, due, waiting, minutes, hours = unpack(KEYS)
local counters = take_counters(ARGV, minutes, hours)
return counted(stream_receipts(stream, ARGV[1], ARGV[2]), counters, retry, due, waiting, ARGV)
