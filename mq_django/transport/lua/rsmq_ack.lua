-- Remove handled deliveries from an RSMQ queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- KEYS[5]  minutes    {namespace}:<queue>:mq:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[6]  hours      {namespace}:<queue>:mq:counters:h:<day>    HASH     counters
-- ARGV[1]  consumer   must still hold each delivery
-- then the receipts: `<id>:<receive count>`
-- then optionally counters: see parts/counted
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with rsmq_receipts
-- with settle
local zset, hash, owners, notes, minutes, hours = unpack(KEYS)
local counters = take_counters(ARGV, minutes, hours)
-- One by one: Redis scans a small hash of owners from its start for each field.
return counted(last_receipts(zset, hash, owners, notes, ARGV[1]), counters, settle_each, ARGV, 2, 1, function() end)
