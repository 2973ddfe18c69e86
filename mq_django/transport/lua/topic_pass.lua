-- Pass deliveries of a topic's log on from one consumer to another, uncounted; or to itself, to keep them its own.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     log-generation
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  new owner  holds them from now on
-- then the receipts: `<entry>@<generation>`
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control = unpack(KEYS)
-- with receipts

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
