-- with bodies
-- with clock
-- with settle
-- with types
-- with due_times
-- Move deliveries to `due` for another attempt. The arguments are the group, the consumer, the channel that gets the
-- new first due time, and for each delivery: its receipt, the message's id, ms from now, the body.
local function retry(receipts, due, waiting, arguments)
  local wrong = wrong_type({ [due] = 'zset', [waiting] = 'hash' })
  if wrong then
    return wrong
  end
  local now, first = now_ms(), first_due(due)
  local stale = settle_each(receipts, arguments, 4, 4, function(entry, at)
    local score = due_at('+', arguments[at + 2], now)
    local member = put_body(waiting, arguments[at + 1], arguments[at + 3])
    redis.call('zadd', due, score, member)
    if receipts.keeps_order then
      receipts.pass(entry, 'm-' .. member)
    end
  end)
  wake_if_earlier(due, first, arguments[3])
  return stale
end
