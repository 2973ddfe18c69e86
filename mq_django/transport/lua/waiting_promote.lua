-- Make what is due ready, by the server's clock: never early.
--
-- KEYS[1]  due        {queue}:due         ZSET    score: due time, ms
-- KEYS[2]  waiting    {queue}:waiting     HASH    member -> body
-- KEYS[3]  unique     {queue}:unique      HASH    unique member -> id
-- KEYS[4]  ready      {queue}:ready       STREAM
-- KEYS[5]  unhandled  {queue}:unhandled   ZSET
-- KEYS[6]  control    {queue}:control     HASH
-- ARGV[1]  limit      messages, at most 500
--
-- Returns {moved, ms until the next is due or -1, 1 if the queue is paused, unhandled messages}.

local due, waiting, unique, ready, unhandled, control = unpack(KEYS)

for key, kind in pairs({ [waiting] = 'hash', [unique] = 'hash', [ready] = 'stream', [control] = 'hash' }) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local members = redis.call('zrangebyscore', due, '-inf', now, 'limit', 0, ARGV[1])
if #members > 0 then
  local bodies = redis.call('hmget', waiting, unpack(members))
  redis.call('zrem', due, unpack(members))
  redis.call('hdel', waiting, unpack(members))
  redis.call('hdel', unique, unpack(members))
  for i = 1, #members do
    -- The member is the message's id, but for a unique message, whose body holds it.
    -- A due time without a body is what is left of a message somebody took apart by hand: there is nothing to deliver.
    if bodies[i] then
      if string.sub(members[i], 1, 2) == 'u:' then
        redis.call('xadd', ready, '*', 'message', bodies[i])
      else
        redis.call('xadd', ready, '*', 'id', members[i], 'message', bodies[i])
      end
    end
  end
end

local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
local paused = redis.call('hget', control, 'paused') == '1' and 1 or 0
return { #members, head and math.max(0, head - now) or -1, paused, redis.call('zcard', unhandled) }
