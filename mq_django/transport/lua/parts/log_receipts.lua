-- with stream_receipts
-- Receipts of deliveries of a topic's log, which is kept: what is settled is acked, not deleted. A receipt is the entry and
-- the generation it was delivered in: after a seek the same consumer may hold the same entry again, and what the first pass
-- has to say must not settle the second.
local function log_receipts(log, control, group, consumer, expected)
  local generation = redis.call('hget', control, 'log-generation') or ''
  local receipts = stream_receipts(log, group, consumer, expected)
  local held = receipts.held
  receipts.held = function(receipt)
    local entry, of = string.match(receipt, '^(.*)@(.*)$')
    return of == generation and held(entry) or nil
  end
  receipts.finish = function(...)
    redis.call('xack', log, group, ...)
  end
  return receipts
end
