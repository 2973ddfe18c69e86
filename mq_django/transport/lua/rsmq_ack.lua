-- Settle deliveries of an RSMQ queue that are done.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that do not count, and more
-- ARGV[1]  consumer   must still hold each delivery
-- then the receipts: `<id>:<receive count>`
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local zset, hash, owners, notes = unpack(KEYS)
-- with rsmq_receipts
local stale = {}
for i = 2, #ARGV do
  local id = held(ARGV[i])
  if id then
    redis.call('zrem', zset, id)
    redis.call('hdel', hash, id, id .. ':rc', id .. ':fr')
    redis.call('hdel', owners, id)
    redis.call('hdel', notes, id .. ':free', id .. ':alone', id .. ':lost', id .. ':story')
  else
    stale[#stale + 1] = ARGV[i]
  end
end
return stale
