-- Find, remove or reschedule a waiting message of an RSMQ queue.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried     ZSET   score as in zset: the message waits for a retry
-- ARGV[1]  id
-- ARGV[2]  action     'find', 'cancel', or to reschedule it '+' (ms from now) or '=' (ms since 1970)
-- ARGV[3]  ms         when it becomes visible
-- ARGV[4]  channel    gets the new first time at which a message is visible
--
-- Returns {'DELAYED' or 'UNHANDLED', score, body, receive count, receives that are no attempts}, 'CANCELLED' or 'RESCHEDULED';
-- or 'MISSING' when it does not wait: it is visible, was received, or does not exist. Only a delayed one is rescheduled.

-- with clock
-- with rsmq
local zset, hash, notes, unhandled, retried = unpack(KEYS)
local id, action = ARGV[1], ARGV[2]
local state = state_of(zset, hash, unhandled, retried, id)
if not state then
  return 'MISSING'
elseif action == 'find' then
  local body, count = redis.call('hget', hash, id) or '', redis.call('hget', hash, id .. ':rc') or 0
  return { state, redis.call('zscore', zset, id), body, count, redis.call('hget', notes, id .. ':free') or 0 }
elseif action == 'cancel' then
  remove_message(zset, hash, notes, id)
  redis.call('zrem', unhandled, id)
  redis.call('zrem', retried, id)
  return 'CANCELLED'
elseif state ~= 'DELAYED' then
  return 'MISSING'
end
local score = whole_due_at(action, ARGV[3], now_ms())
allow_writes(zset)
redis.call('zadd', zset, score, id)
if redis.call('hexists', hash, id .. ':rc') == 1 then
  redis.call('zadd', retried, score, id)
end
redis.call('publish', ARGV[4], 'due ' .. score)
return 'RESCHEDULED'
