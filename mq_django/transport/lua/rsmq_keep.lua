-- Keep deliveries of an RSMQ queue hidden, or pass them on to another consumer, uncounted.
--
-- KEYS[1]  zset      {namespace}:<queue>             ZSET   score: when visible, ms
-- KEYS[2]  hash      {namespace}:<queue>:Q           HASH   attributes, bodies, counts
-- KEYS[3]  owners    {namespace}:<queue>:mq:owners   HASH   id -> consumer and receive count
-- ARGV[1]  consumer  must still hold each delivery
-- ARGV[2]  new owner holds them from now on
-- ARGV[3]  vt        ms to hide them
-- then the receipts: `<id>:<receive count>`
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with clock
local zset, hash, owners = unpack(KEYS)
-- with rsmq_receipts
-- with rsmq_drains
local hidden = string.format('%.0f', now_ms() + ARGV[3])
local stale = {}
for i = 4, #ARGV do
  local id = held(ARGV[i])
  if id then
    redis.call('zadd', zset, hidden, id)
    redis.call('hset', owners, id, ARGV[2] .. ' ' .. string.match(ARGV[i], '%d+$'))
  else
    stale[#stale + 1] = ARGV[i]
  end
end
return stale
