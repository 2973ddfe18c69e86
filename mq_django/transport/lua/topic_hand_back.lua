-- Give deliveries of a topic's log back uncharged, before everything that is still in the log.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  ready      {topic}:g:<group>:ready       STREAM   read before the log, and waited for like it
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt; the message's id and time, which it brings along to its new entry; and 'lost'
-- when its consumer vanished with its machine: what that happens to twice runs alone from then on; or 'suspect' when it
-- was running beside others as their process died: it runs alone from now on
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with hand_back
-- with log_receipts
-- with types
local log, control, ready = unpack(KEYS)
local wrong = wrong_type({ [ready] = 'stream' })
if wrong then
  return wrong
end
return hand_back(log_receipts(log, control, ARGV[1], ARGV[2]), ready, ARGV)
