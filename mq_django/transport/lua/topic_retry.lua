-- Let deliveries of a topic's log wait for another attempt, among what their group keeps itself.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  due        {topic}:g:<group>:due         ZSET     score: due time, ms
-- KEYS[4]  waiting    {topic}:g:<group>:waiting     HASH     member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  channel    told the new first due time
-- then for each delivery: the receipt, the message's id, ms from now, the body
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control, due, waiting = unpack(KEYS)
-- with types
local wrong = wrong_type({ [due] = 'zset', [waiting] = 'hash' })
if wrong then
  return wrong
end

-- with receipts

-- with clock
-- with bodies
-- with drains
local now = now_ms()
local first = redis.call('zrange', due, 0, 0, 'withscores')[2]
local stale = {}
for at = 4, #ARGV, 4 do
  local entry = held(ARGV[at])
  if entry then
    redis.call('zadd', due, due_at('+', ARGV[at + 2], now), put_body(waiting, ARGV[at + 1], ARGV[at + 3]))
    redis.call('xack', log, ARGV[1], entry)
  else
    stale[#stale + 1] = ARGV[at]
  end
end
local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
if head and head ~= first then
  redis.call('publish', ARGV[3], 'due ' .. head)
end
return stale
