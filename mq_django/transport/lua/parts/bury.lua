-- with clock
-- with groups
-- with settle
-- with types
-- Let deliveries be dead letters. The arguments from `from` on are for each: its receipt, the message's id, the number of
-- fields and values, and these.
local function bury(receipts, dead, ids, groups, arguments, from)
  local wrong = wrong_type({ [dead] = 'stream', [ids] = 'hash' })
  if wrong then
    return wrong
  end
  local now = now_ms()
  local function width(at)
    return 3 + arguments[at + 2]
  end
  return settle_each(receipts, arguments, from, width, function(_, at)
    local first, last = at + 3, at + width(at) - 1
    local buried = redis.call('xadd', dead, '*', unpack(arguments, first, last))
    redis.call('hset', ids, arguments[at + 1], buried)
    count_dead(groups, dead, group_of(arguments, first, last), now)
  end)
end
