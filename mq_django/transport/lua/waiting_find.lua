-- Look a message up that waits.
--
-- KEYS[1]  due        {queue}:due         ZSET   score: due time, ms
-- KEYS[2]  unhandled  {queue}:unhandled   ZSET
-- KEYS[3]  priority   {queue}:priority    ZSET
-- KEYS[4]  parked     {queue}:parked      ZSET
-- KEYS[5]  waiting    {queue}:waiting     HASH   member -> body
-- KEYS[6]  unique     {queue}:unique      HASH   unique member -> id, and id -> member
-- KEYS[7]  claims     {queue}:claims      HASH   what claims a unique key
-- KEYS[8]  replaced   {queue}:replaced    ZSET   ids that others took the place of; score: when, ms
-- ARGV[1]  named      the message's id, or 'u:' and its unique key
--
-- Returns {which of the first four keys, score, body or '', member}; or 'REPLACED'; or 'MISSING' when it does not
-- wait: it is ready by now, or was never there.

-- with clock
-- with members
-- with replaced
local member = member_of(KEYS[6], KEYS[7], ARGV[1])
for at = 1, 4 do
  local score = redis.call('zscore', KEYS[at], member)
  if score then
    return { at, score, redis.call('hget', KEYS[5], member) or '', member }
  end
end
return was_replaced(KEYS[8], ARGV[1]) and 'REPLACED' or 'MISSING'
