-- Remove handled deliveries from an RSMQ queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- ARGV[1]  consumer   must still hold each delivery
-- then the receipts: `<id>:<receive count>`
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with rsmq_receipts
-- with settle
local zset, hash, owners, notes = unpack(KEYS)
-- One by one: Redis scans a small hash of owners from its start for each field.
return settle_each(last_receipts(zset, hash, owners, notes, ARGV[1]), ARGV, 2, 1, function() end)
