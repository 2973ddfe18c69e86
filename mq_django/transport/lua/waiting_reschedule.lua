-- Change the due time of a delayed message.
--
-- KEYS[1]  due       {queue}:due        ZSET   score: due time, ms
-- KEYS[2]  unique    {queue}:unique     HASH   unique member -> id, and id -> member
-- KEYS[3]  claims    {queue}:claims     HASH   claims of unique keys
-- KEYS[4]  replaced  {queue}:replaced   ZSET   ids of replaced messages; score: when, ms
-- ARGV[1]  id        the message's id, or 'u:' and its unique key
-- ARGV[2]  mode      '+' (ms from now) or '=' (ms since 1970)
-- ARGV[3]  ms
-- ARGV[4]  channel   gets the new first due time
--
-- Returns 'RESCHEDULED', 'REPLACED', or 'MISSING' when it is not delayed: it is ready already, or does not exist.

-- with clock
-- with waiting_members
-- with due_times
local due, unique, claims, replaced = unpack(KEYS)

local member = member_of(unique, claims, ARGV[1])
if not redis.call('zscore', due, member) then
  return was_replaced(replaced, ARGV[1]) and 'REPLACED' or 'MISSING'
end
local before = first_due(due)
redis.call('zadd', due, due_at(ARGV[2], ARGV[3], now_us() / 1000), member)
wake_if_earlier(due, before, ARGV[4])
return 'RESCHEDULED'
