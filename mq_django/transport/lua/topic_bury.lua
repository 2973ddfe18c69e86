-- Give deliveries of a topic's log up: to the dead letters of their group.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  dead       {topic}:g:<group>:dead        STREAM
-- KEYS[4]  dead ids   {topic}:g:<group>:dead-ids    HASH     message id -> entry of `dead`
-- KEYS[5]  groups     {topic}:g:<group>:dead-groups HASH     see parts/groups
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the number of fields and values, and these
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control, dead, ids, groups = unpack(KEYS)
-- with types
-- with clock
-- with groups
local wrong = wrong_type({ [dead] = 'stream', [ids] = 'hash' })
if wrong then
  return wrong
end

-- with receipts

-- with drains
local now, stale, at = now_ms(), {}, 3
while at <= #ARGV do
  local entry, fields = held(ARGV[at]), tonumber(ARGV[at + 2])
  if entry then
    local buried = redis.call('xadd', dead, '*', unpack(ARGV, at + 3, at + 2 + fields))
    redis.call('hset', ids, ARGV[at + 1], buried)
    count_dead(groups, dead, group_of(ARGV, at + 3, at + 2 + fields), now)
    redis.call('xack', log, ARGV[1], entry)
  else
    stale[#stale + 1] = ARGV[at]
  end
  at = at + 3 + fields
end
return stale
