-- with stream_receipts
-- Receipts of deliveries of a topic's log: settled entries are acked, not deleted. A receipt is the entry and the
-- group's generation: after a seek the same consumer may hold the same entry again, and the outcome of the first
-- delivery must not settle the second.
local function log_receipts(log, control, group, consumer, expected)
  local generation = redis.call('hget', control, 'log-generation') or ''
  local receipts = stream_receipts(log, group, consumer, expected)
  local held = receipts.held
  receipts.held = function(receipt)
    local entry, delivered_in = string.match(receipt, '^(.*)@(.*)$')
    return delivered_in == generation and held(entry) or nil
  end
  receipts.finish = function(...)
    redis.call('xack', log, group, ...)
  end
  return receipts
end
