-- Reassign deliveries of an RSMQ queue to another consumer, or extend them if it is the same one.
-- No attempt is counted.
--
-- KEYS[1]  zset      {namespace}:<queue>             ZSET   score: when visible, ms
-- KEYS[2]  hash      {namespace}:<queue>:Q           HASH   attributes, bodies, counts
-- KEYS[3]  owners    {namespace}:<queue>:mq:owners   HASH   id -> consumer and receive count
-- ARGV[1]  consumer  must still hold each delivery
-- ARGV[2]  new owner
-- ARGV[3]  vt        ms to hide them
-- then the receipts: `<id>:<receive count>`
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with clock
-- with rsmq_receipts
-- with settle
local zset, hash, owners = unpack(KEYS)
local receipts = rsmq_receipts(zset, hash, owners, ARGV[1])
receipts.reassign = function(new_owner, ids)
  receipts.allow_writes()
  local hidden = string.format('%.0f', now_ms() + ARGV[3])
  for _, id in ipairs(ids) do
    redis.call('zadd', zset, hidden, id)
    redis.call('hset', owners, id, new_owner .. ' ' .. redis.call('hget', hash, id .. ':rc'))
  end
end
return reassign(receipts, ARGV[2], ARGV, 4)
