-- Pass deliveries of a topic's log on from one consumer to another, uncounted; or to itself, to keep them its own.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  heir       holds them from now on
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

local passed, stale = {}, {}
for i = 4, #ARGV do
  local entry = held(ARGV[i])
  if entry then
    passed[#passed + 1] = entry
  else
    stale[#stale + 1] = ARGV[i]
  end
end
if #passed > 0 then
  passed[#passed + 1] = 'justid'
  redis.call('xclaim', log, ARGV[1], ARGV[3], 0, unpack(passed))
end
return stale
