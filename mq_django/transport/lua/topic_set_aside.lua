-- Take deliveries of a topic's log that nobody here can handle out of the way, uncharged.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  unhandled  {topic}:g:<group>:unhandled   ZSET     score: the name's hash
-- KEYS[4]  waiting    {topic}:g:<group>:waiting     HASH     member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt, the message's id, the score, the body
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control, unhandled, waiting = unpack(KEYS)
-- with types
local wrong = wrong_type({ [unhandled] = 'zset', [waiting] = 'hash' })
if wrong then
  return wrong
end

-- with receipts

-- with bodies
-- with drains
local stale = {}
for at = 3, #ARGV, 4 do
  local entry = held(ARGV[at])
  if entry then
    redis.call('zadd', unhandled, ARGV[at + 2], put_body(waiting, ARGV[at + 1], ARGV[at + 3]))
    redis.call('xack', log, ARGV[1], entry)
  else
    stale[#stale + 1] = ARGV[at]
  end
end
return stale
