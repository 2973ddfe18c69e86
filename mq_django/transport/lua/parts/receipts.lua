-- The receipts of deliveries of a topic's log. The script has named its keys log and control; its first two arguments are
-- the group and the consumer.
local generation = redis.call('hget', control, 'log-generation') or ''

-- A receipt is the entry and the generation it was delivered in: after a seek the same consumer may hold the same entry
-- again, and what the first pass has to say must not settle the second.
local function held(receipt)
  local entry, of = string.match(receipt, '^(.*)@(.*)$')
  if of == generation and #redis.call('xpending', log, ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    return entry
  end
end
