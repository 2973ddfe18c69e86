-- Find a waiting message.
--
-- KEYS[1]  due        {queue}:due        ZSET  score: due time, ms
-- KEYS[2]  unhandled  {queue}:unhandled  ZSET
-- KEYS[3]  priority   {queue}:priority   ZSET
-- KEYS[4]  parked     {queue}:parked     ZSET
-- KEYS[5]  waiting    {queue}:waiting    HASH  member -> body
-- KEYS[6]  unique     {queue}:unique     HASH  unique member -> id, and id -> member
-- KEYS[7]  claims     {queue}:claims     HASH  claims of unique keys
-- KEYS[8]  replaced   {queue}:replaced   ZSET  ids of replaced messages; score: when, ms
-- ARGV[1]  id         the message's id, or 'u:' and its unique key
--
-- Returns {index of the key, 1 to 4, score, body or '', member}; or 'REPLACED'; or 'MISSING' when it does not wait: it
-- is ready already, or does not exist.

-- with clock
-- with waiting_members
local member = member_of(KEYS[6], KEYS[7], ARGV[1])
for at = 1, 4 do
  local score = redis.call('zscore', KEYS[at], member)
  if score then
    return { at, score, redis.call('hget', KEYS[5], member) or '', member }
  end
end
return was_replaced(KEYS[8], ARGV[1]) and 'REPLACED' or 'MISSING'
