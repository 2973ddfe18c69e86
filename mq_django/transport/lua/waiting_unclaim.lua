-- Release the unique keys that deliveries claim, before they are acked, expired or buried.
--
-- KEYS[1]  stream    {queue}:ready or :urgent   STREAM
-- KEYS[2]  claims    {queue}:claims             HASH   'k:' key -> 'until:id' (ms), and 'i:' id -> key
-- ARGV[1]  group
-- ARGV[2]  consumer  must still hold each delivery
-- then for each delivery: the entry's id, the message's id
--
-- Returns 'RELEASED'.

-- with claims
-- with stream_receipts
local receipts = stream_receipts(KEYS[1], ARGV[1], ARGV[2])
for at = 3, #ARGV, 2 do
  if receipts.held(ARGV[at]) then
    release_claim(KEYS[2], ARGV[at + 1])
  end
end
return 'RELEASED'
