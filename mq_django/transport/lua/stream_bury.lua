-- Give deliveries up: to the dead-letter queue.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- KEYS[2]  dead       {queue}:dead               STREAM
-- KEYS[3]  dead ids   {queue}:dead-ids           HASH   message id -> entry of `dead`
-- KEYS[4]  groups     {queue}:dead-groups        HASH   see parts/groups
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the number of fields and values, and these
--
-- Returns the ids of the entries that the consumer no longer holds; these are left as they are.

-- with clock
-- with groups
-- with types
local wrong = wrong_type({ [KEYS[2]] = 'stream', [KEYS[3]] = 'hash' })
if wrong then
  return wrong
end

-- with drains
local now, stale, at = now_ms(), {}, 3
while at <= #ARGV do
  local entry, member, fields = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if #redis.call('xpending', KEYS[1], ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    local buried = redis.call('xadd', KEYS[2], '*', unpack(ARGV, at + 3, at + 2 + fields))
    redis.call('hset', KEYS[3], member, buried)
    count_dead(KEYS[4], KEYS[2], group_of(ARGV, at + 3, at + 2 + fields), now)
    redis.call('xack', KEYS[1], ARGV[1], entry)
    redis.call('xdel', KEYS[1], entry)
  else
    stale[#stale + 1] = entry
  end
  at = at + 3 + fields
end
return stale
