-- Return deliveries of a topic's log to the front of their group. No attempt is counted.
--
-- KEYS[1]  log        {topic}:log                   STREAM   settled entries are acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  ready      {topic}:g:<group>:ready       STREAM   read before the log; blocked readers wait for both
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt; the message's id and time; 'lost', 'suspect' or '': see parts/hand_back
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with hand_back
-- with log_receipts
-- with types
local log, control, ready = unpack(KEYS)
local wrong = wrong_type({ [ready] = 'stream' })
if wrong then
  return wrong
end
return hand_back(log_receipts(log, control, ARGV[1], ARGV[2]), ready, ARGV)
