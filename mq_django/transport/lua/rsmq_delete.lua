-- Delete messages of an RSMQ queue, also if they are held.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH
-- KEYS[5]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- then ARGV: ids
--
-- Returns how many existed.

-- with rsmq
local zset, hash, owners, notes, unhandled = unpack(KEYS)
local removed = 0
for _, id in ipairs(ARGV) do
  removed = removed + (remove_message(zset, hash, notes, id) and 1 or 0)
  redis.call('hdel', owners, id)
  redis.call('zrem', unhandled, id)
end
return removed
