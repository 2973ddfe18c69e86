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
-- with receipts

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
