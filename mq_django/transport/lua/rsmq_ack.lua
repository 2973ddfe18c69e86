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

-- with rsmq_receipts
-- with settle
local zset, hash, owners, notes = unpack(KEYS)
-- One after the other: the hash of owners may be so small that Redis goes through it from its start.
return settle_each(last_receipts(zset, hash, owners, notes, ARGV[1]), ARGV, 2, 1, function() end)
