-- Take deliveries back from their consumer and let them wait for another attempt.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- KEYS[2]  due        {queue}:due                ZSET   score: due time, ms
-- KEYS[3]  waiting    {queue}:waiting            HASH   member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  channel    told the new first due time
-- then for each delivery: the entry's id, the message's id, ms from now, the body
--
-- Returns the ids of the entries that the consumer no longer holds; these are left as they are.

-- with clock
local home, due, waiting = KEYS[1], KEYS[2], KEYS[3]
-- with types
local wrong = wrong_type({ [due] = 'zset', [waiting] = 'hash' })
if wrong then
  return wrong
end

-- with bodies
-- with drains
local now = now_ms()
local first = redis.call('zrange', due, 0, 0, 'withscores')[2]
local stale = {}
for at = 4, #ARGV, 4 do
  local entry = ARGV[at]
  if #redis.call('xpending', home, ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    redis.call('zadd', due, due_at('+', ARGV[at + 2], now), put_body(waiting, ARGV[at + 1], ARGV[at + 3]))
    redis.call('xack', home, ARGV[1], entry)
    redis.call('xdel', home, entry)
  else
    stale[#stale + 1] = entry
  end
end
local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
if head and head ~= first then
  redis.call('publish', ARGV[3], 'due ' .. head)
end
return stale
