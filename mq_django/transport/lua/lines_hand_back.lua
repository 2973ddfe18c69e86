-- Return deliveries of a queue with lines to the front of it, with their tokens. No attempt is counted.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  ready      {queue}:ready              STREAM
-- KEYS[7]  urgent     {queue}:urgent             STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id; the message's id and time; 'lost', 'suspect' or '': see parts/hand_back
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with hand_back
-- with line_receipts
-- with types
-- with undelivered
local ready, urgent = unpack(KEYS, 6, 7)
local group, consumer = ARGV[1], ARGV[2]
local wrong = wrong_line_keys(KEYS) or wrong_type({ [ready] = 'stream', [urgent] = 'stream' })
if wrong then
  return wrong
end

-- Every fetch reads `urgent` before `ready`, but a blocked reader waits for `ready` only. It is blocked only when
-- `ready` has no undelivered entry, and an entry of `ready` is then the first.
local target = #undelivered(ready, group, 1) > 0 and urgent or ready
local stale = hand_back(line_receipts(KEYS, group, consumer), target, ARGV)
if target == urgent then
  -- Not before the first write: when memory is out, XGROUP CREATE fails, and so would the script.
  redis.pcall('xgroup', 'create', urgent, group, '0')
end
return stale
