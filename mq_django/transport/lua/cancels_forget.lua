-- Forget the requests to cancel deliveries, before these are removed as cancelled.
--
-- KEYS[1]  stream    {queue}:ready or :urgent   STREAM
-- KEYS[2]  cancels   {queue}:cancels            ZSET   ids
-- ARGV[1]  group
-- ARGV[2]  consumer  must still hold each delivery
-- then for each delivery: the entry's id, the message's id
--
-- Returns 'FORGOTTEN'; or 'SKIPPED' if the key has another type: no error, because the messages are removed all the same.

-- with types
-- with stream_receipts
if wrong_type({ [KEYS[2]] = 'zset' }) then
  return 'SKIPPED'
end
local receipts = stream_receipts(KEYS[1], ARGV[1], ARGV[2])
for at = 3, #ARGV, 2 do
  if receipts.held(ARGV[at]) then
    redis.call('zrem', KEYS[2], ARGV[at + 1])
  end
end
return 'FORGOTTEN'
