-- Settle deliveries of a topic's log that are done.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the receipts: `<entry>@<generation>`
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control = unpack(KEYS)
local generation = redis.call('hget', control, 'log-generation') or ''

-- A receipt is the entry and the generation it was delivered in: after a seek the same consumer may hold the same entry
-- again, and what the first pass has to say must not settle the second.
local function held(receipt)
  local entry, of = string.match(receipt, '^(.*)@(.*)$')
  if of == generation and #redis.call('xpending', log, ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    return entry
  end
end

local done, stale = {}, {}
for i = 3, #ARGV do
  local entry = held(ARGV[i])
  if entry then
    done[#done + 1] = entry
  else
    stale[#stale + 1] = ARGV[i]
  end
end
if #done > 0 then
  redis.call('xack', log, ARGV[1], unpack(done))
end
return stale
