-- Move deliveries of a queue with lines that no consumer can handle to `unhandled`. With order their keys wait. No attempt is
-- counted.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  unhandled  {queue}:unhandled          ZSET   score: hash of the name
-- KEYS[7]  waiting    {queue}:waiting            HASH   member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the score, the body
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with set_aside
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
local unhandled, waiting = unpack(KEYS, 6, 7)
return set_aside(line_receipts(KEYS, ARGV[1], ARGV[2]), unhandled, waiting, ARGV)
