-- Hide deliveries of an RSMQ queue that nobody here can handle, uncharged: others may.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that do not count, and more
-- KEYS[5]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET   score: the name's hash
-- ARGV[1]  consumer   must still hold each delivery
-- ARGV[2]  ms         to hide them
-- then for each delivery: the receipt, the score
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with clock
-- with counted
-- with rsmq_receipts
-- with settle
-- with types
local zset, hash, owners, notes, unhandled = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash', [unhandled] = 'zset' })
if wrong then
  return wrong
end

local hidden = string.format('%.0f', now_ms() + ARGV[2])
return settle_each(rsmq_receipts(zset, hash, owners, ARGV[1]), ARGV, 3, 2, function(id, at)
  redis.call('zadd', zset, hidden, id)
  redis.call('zadd', unhandled, ARGV[at + 1], id)
  counted(notes, id .. ':free', 1)
end)
