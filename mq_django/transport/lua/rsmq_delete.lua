-- Delete messages of an RSMQ queue, whoever holds them.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH
-- KEYS[5]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- then ARGV: ids
--
-- Returns how many were there.

local zset, hash, owners, notes, unhandled = unpack(KEYS)
local removed = 0
for _, id in ipairs(ARGV) do
  local there = redis.call('zrem', zset, id)
  local fields = redis.call('hdel', hash, id, id .. ':rc', id .. ':fr')
  redis.call('hdel', owners, id)
  redis.call('hdel', notes, id .. ':free', id .. ':alone', id .. ':lost', id .. ':story')
  redis.call('zrem', unhandled, id)
  removed = removed + (there == 1 and fields > 0 and 1 or 0)
end
return removed
