-- Make what is due ready, by the server's clock: never early.
--
-- KEYS[1]  due        {queue}:due         ZSET    score: due time, ms
-- KEYS[2]  waiting    {queue}:waiting     HASH    member -> body
-- KEYS[3]  unique     {queue}:unique      HASH    unique member -> id, and id -> member
-- KEYS[4]  ready      {queue}:ready       STREAM
-- KEYS[5]  priority   {queue}:priority    ZSET    score: see parts/ranks
-- KEYS[6]  unhandled  {queue}:unhandled   ZSET
-- KEYS[7]  control    {queue}:control     HASH
-- KEYS[8]  parked     {queue}:parked      ZSET    score: the key's hash
-- ARGV[1]  limit      messages, at most 500
-- ARGV[2]  group
-- ARGV[3]  free       1 when no key is limited (any more): then nothing is to stay parked
--
-- Returns {moved, microseconds until the next is due or -1, 1 if the queue is paused, unhandled messages}.

-- with types
-- with ready
local due, waiting, unique, ready, priority, unhandled, control, parked = unpack(KEYS)

local wrong = wrong_type({ [waiting] = 'hash', [unique] = 'hash', [ready] = 'stream', [control] = 'hash' })
  or wrong_type({ [priority] = 'zset', [unhandled] = 'zset', [parked] = 'zset' })
if wrong then
  return wrong
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local from, members = due, redis.call('zrangebyscore', due, '-inf', now, 'limit', 0, ARGV[1])
if #members == 0 and ARGV[3] == '1' then
  from, members = parked, redis.call('zrange', parked, 0, ARGV[1] - 1)
end
if #members > 0 then
  local bodies = redis.call('hmget', waiting, unpack(members))
  redis.call('zrem', from, unpack(members))
  redis.call('hdel', waiting, unpack(members))
  local make_ready = readier(ready, priority, waiting, control, ARGV[2])
  for i, member in ipairs(members) do
    -- The member is the message's id, but for a unique or parked message, whose body holds it.
    local id = member
    if string.match(member, '^[up]:') then
      id = redis.call('hget', unique, member)
      redis.call('hdel', unique, member, id or member)
    end
    -- A due time without a body is what is left of a message somebody took apart by hand: there is nothing to deliver.
    if bodies[i] then
      make_ready(id, bodies[i])
    end
  end
end

local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
if ARGV[3] == '1' and redis.call('zcard', parked) > 0 then
  head = now
end
local paused = redis.call('hget', control, 'paused') == '1' and 1 or 0
local until_head = head and math.max(0, (head - time[1] * 1000) * 1000 - time[2]) or -1
return { #members, until_head, paused, redis.call('zcard', unhandled) }
