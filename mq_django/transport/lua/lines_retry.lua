-- Move deliveries of a queue with lines to `due`, for another attempt. With order their keys wait for that.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  due        {queue}:due                ZSET   score: due time, ms
-- KEYS[7]  waiting    {queue}:waiting            HASH   member -> body
-- KEYS[8]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[9]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  channel    gets the new first due time
-- then for each delivery: the entry's id, the message's id, ms from now, the body
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with retry
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
local due, waiting, minutes, hours = unpack(KEYS, 6, 9)
local counters = take_counters(ARGV, minutes, hours)
return counted(line_receipts(KEYS, ARGV[1], ARGV[2]), counters, retry, due, waiting, ARGV)
