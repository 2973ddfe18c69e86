-- Reassign deliveries of a queue with lines to another consumer, or extend them if it is the same one. No attempt is counted.
--
-- KEYS[1..5]  stream, permits, parked, checks, control: see parts/line_receipts
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  new owner
-- then the ids of the entries
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with settle
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
return reassign(line_receipts(KEYS, ARGV[1], ARGV[2], #ARGV), ARGV[3], ARGV, 4)
