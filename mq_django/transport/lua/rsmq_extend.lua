-- Hide all messages of an RSMQ queue that the given consumers hold for another visibility timeout.
--
-- KEYS[1]  zset      {namespace}:<queue>             ZSET   score: when visible, ms
-- KEYS[2]  hash      {namespace}:<queue>:Q           HASH   attributes, bodies, counts
-- KEYS[3]  owners    {namespace}:<queue>:mq:owners   HASH   id -> consumer and receive count
-- ARGV[1]  vt        ms to hide them
-- then the consumers
--
-- Returns their number. Owner records of messages that another program has received or deleted since are removed.

-- with clock
-- with rsmq
local zset, hash, owners = unpack(KEYS)
allow_writes(zset)
local selected, hidden, extended = {}, string.format('%.0f', now_ms() + ARGV[1]), 0
for i = 2, #ARGV do
  selected[ARGV[i]] = true
end
local all = redis.call('hgetall', owners)
for at = 1, #all, 2 do
  local id, consumer, count = all[at], string.match(all[at + 1], '^(.*) (%d+)$')
  local is_selected = consumer and selected[consumer]
  if is_selected and redis.call('hget', hash, id .. ':rc') == count and redis.call('zscore', zset, id) then
    redis.call('zadd', zset, hidden, id)
    extended = extended + 1
  elseif is_selected then
    redis.call('hdel', owners, id)
  end
end
return extended
