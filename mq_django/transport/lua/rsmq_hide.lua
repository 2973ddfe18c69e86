-- Keep hidden all that some consumers hold of an RSMQ queue, whether it runs or waits for its turn.
--
-- KEYS[1]  zset      {namespace}:<queue>             ZSET   score: when visible, ms
-- KEYS[2]  hash      {namespace}:<queue>:Q           HASH   attributes, bodies, counts
-- KEYS[3]  owners    {namespace}:<queue>:mq:owners   HASH   id -> consumer and receive count
-- ARGV[1]  vt        ms to hide them
-- then the consumers
--
-- Returns how many there are. Records of what others have received or deleted since are removed.

-- with clock
-- with rsmq_drains
local zset, hash, owners = unpack(KEYS)
allow_writes(zset)
local meant, hidden, kept = {}, string.format('%.0f', now_ms() + ARGV[1]), 0
for i = 2, #ARGV do
  meant[ARGV[i]] = true
end
local all = redis.call('hgetall', owners)
for at = 1, #all, 2 do
  local id, consumer, count = all[at], string.match(all[at + 1], '^(.*) (%d+)$')
  local is_meant = consumer and meant[consumer]
  if is_meant and redis.call('hget', hash, id .. ':rc') == count and redis.call('zscore', zset, id) then
    redis.call('zadd', zset, hidden, id)
    kept = kept + 1
  elseif is_meant then
    redis.call('hdel', owners, id)
  end
end
return kept
