-- with bodies
-- with settle
-- with types
-- Move deliveries to `unhandled` until a consumer has a handler for their name. No attempt is counted. The arguments
-- are the group, the consumer, and for each delivery: its receipt, the message's id, the score, the body.
local function set_aside(receipts, unhandled, waiting, arguments)
  local wrong = wrong_type({ [unhandled] = 'zset', [waiting] = 'hash' })
  if wrong then
    return wrong
  end
  return settle_each(receipts, arguments, 3, 4, function(entry, at)
    local member = put_body(waiting, arguments[at + 1], arguments[at + 3])
    redis.call('zadd', unhandled, arguments[at + 2], member)
    if receipts.keeps_order then
      receipts.pass(entry, 'm-' .. member)
    end
  end)
end
