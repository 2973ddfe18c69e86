-- Reassign deliveries to another consumer, or extend them if it is the same one. No attempt is counted.
--
-- KEYS     as named: the keys of the form of queue, see settle
-- ARGV[1]  names      of the keys, separated by spaces
-- ARGV[2]  group      '' in RSMQ's format
-- ARGV[3]  consumer   must still hold each delivery
-- ARGV[4]  new owner
-- ARGV[5]  hidden     in RSMQ's format: for how many ms
-- then the receipts, at most 500
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed. Deliveries of a queue with lines
-- whose entries were deleted end when they are reassigned.

-- with named
-- with receipts
local at = keys_named(ARGV[1])
local receipts = receipts_of(at, ARGV[2], ARGV[3], #ARGV - 5)
local found, stale = {}, {}
for i = 6, #ARGV do
  local entry = receipts.held(ARGV[i])
  local list = entry and found or stale
  list[#list + 1] = entry or ARGV[i]
end
if #found > 0 then
  receipts.allow_writes()
  for _, entry in ipairs(receipts.reassign(ARGV[4], found, ARGV[5]) or {}) do
    stale[#stale + 1] = entry
  end
end
return stale
