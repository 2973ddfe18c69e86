-- Acknowledge handled deliveries of a queue with lines, and let the next messages of their keys run.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[7]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the ids of the entries
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with settle
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
local counters = take_counters(ARGV, KEYS[6], KEYS[7])
return counted(line_receipts(KEYS, ARGV[1], ARGV[2], #ARGV), counters, settle_done, ARGV, 3)
