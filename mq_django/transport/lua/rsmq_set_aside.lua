-- Hide deliveries of an RSMQ queue that have no handler here: another program may handle them. No attempt is counted.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- KEYS[5]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET   score: hash of the name
-- ARGV[1]  consumer   must still hold each delivery
-- ARGV[2]  ms         to hide them
-- then for each delivery: the receipt, the score
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with clock
-- with increment
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
  increment(notes, id .. ':free', 1)
end)
