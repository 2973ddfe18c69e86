-- Give deliveries of an RSMQ queue up: to the dead-letter queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that do not count, and more
-- KEYS[5]  dead       {namespace}:<queue>:mq:dead        STREAM
-- KEYS[6]  dead ids   {namespace}:<queue>:mq:dead-ids    HASH   message id -> entry of `dead`
-- KEYS[7]  groups     {namespace}:<queue>:mq:dead-groups HASH   see parts/groups
-- ARGV[1]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the number of fields and values of the dead letter, and these
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with types
-- with clock
-- with groups
local zset, hash, owners, notes, dead, ids, groups = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash', [dead] = 'stream', [ids] = 'hash' })
if wrong then
  return wrong
end

-- with rsmq_receipts
-- with rsmq_drains
local now, stale, at = now_ms(), {}, 2
while at <= #ARGV do
  local id, fields = held(ARGV[at]), tonumber(ARGV[at + 1])
  if id then
    -- The body as it is: that is what is put back when the message is redriven.
    local letter = { unpack(ARGV, at + 2, at + 1 + fields) }
    letter[#letter + 1] = 'deadbody'
    letter[#letter + 1] = redis.call('hget', hash, id) or ''
    redis.call('hset', ids, id, redis.call('xadd', dead, '*', unpack(letter)))
    count_dead(groups, dead, group_of(letter, 1, #letter), now)
    redis.call('zrem', zset, id)
    redis.call('hdel', hash, id, id .. ':rc', id .. ':fr')
    redis.call('hdel', owners, id)
    redis.call('hdel', notes, id .. ':free', id .. ':alone', id .. ':lost', id .. ':story')
  else
    stale[#stale + 1] = ARGV[at]
  end
  at = at + 2 + fields
end
return stale
