-- with clock
-- with dead_groups
-- with settle
-- with step_notes
-- with types
-- Move deliveries to the dead-letter queue. From `from` on the arguments are for each: its receipt, the message's id,
-- the number of fields and values, and these. If the receipts have a function `body`, the body of the
-- message is added as the field `deadbody`. `notes` may be nil.
local function bury(receipts, dead, ids, groups, notes, arguments, from)
  local wrong = wrong_type({ [dead] = 'stream', [ids] = 'hash' })
  if wrong then
    return wrong
  end
  local now = now_ms()
  local function width(at)
    return 3 + arguments[at + 2]
  end
  return settle_each(receipts, arguments, from, width, function(entry, at)
    local letter = { unpack(arguments, at + 3, at + width(at) - 1) }
    if receipts.body then
      letter[#letter + 1] = 'deadbody'
      letter[#letter + 1] = receipts.body(entry)
    end
    local buried = redis.call('xadd', dead, '*', unpack(letter))
    redis.call('hset', ids, arguments[at + 1], buried)
    if receipts.holds_key then
      receipts.pass(entry, 'd-' .. buried)
    end
    local group = group_of(letter, 1, #letter)
    count_dead(groups, dead, group, now)
    note_step(notes, arguments[at + 1], 'failed', '', group)
  end)
end
