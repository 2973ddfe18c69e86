-- Give deliveries of a topic's log back uncharged, before everything that is still in the log.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- KEYS[3]  ready      {topic}:g:<group>:ready       STREAM   read before the log, and waited for like it
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the receipt; the message's id and time, which it brings along to its new entry; and 'lost'
-- when its consumer vanished with its machine: what that happens to twice runs alone from then on; or 'suspect' when it
-- was running beside others as their process died: it runs alone from now on
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control, ready = unpack(KEYS)
-- with types
local wrong = wrong_type({ [ready] = 'stream' })
if wrong then
  return wrong
end

-- with receipts
-- with again
-- with drains
local stale = {}
for at = 3, #ARGV, 4 do
  local entry = held(ARGV[at])
  if entry then
    local read = redis.call('xrange', log, entry, entry)[1]
    if read then
      redis.call('xadd', ready, '*', unpack(again(read[2], at)))
    end
    redis.call('xack', log, ARGV[1], entry)
  else
    stale[#stale + 1] = ARGV[at]
  end
end
return stale
