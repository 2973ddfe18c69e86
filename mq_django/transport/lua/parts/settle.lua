-- Settle deliveries by receipts, a table of functions:
--   held(receipt)                 return the entry if the consumer still holds this delivery
--   finish(entry, ...)            remove settled entries from the consumer
--   reassign(new_owner, entries)  assign entries to another consumer
--   allow_writes()                make a write that Redis allows when memory is out; the writes after it are then
--                                 allowed, too, so that a full Redis can be emptied
-- Deliveries that the consumer no longer holds are not changed, and their receipts are returned.

local function held_and_stale(receipts, arguments, from)
  local held, stale = {}, {}
  for at = from, #arguments do
    local entry = receipts.held(arguments[at])
    local list = entry and held or stale
    list[#list + 1] = entry or arguments[at]
  end
  return held, stale
end

-- Settle deliveries that need no other write: from `from` on the arguments are their receipts.
local function settle_done(receipts, arguments, from)
  local done, stale = held_and_stale(receipts, arguments, from)
  if #done > 0 then
    receipts.finish(unpack(done))
  end
  return stale
end

-- Reassign deliveries to another consumer, or extend them if it is the same one: from `from` on the arguments are their
-- receipts.
local function reassign(receipts, new_owner, arguments, from)
  local found, stale = held_and_stale(receipts, arguments, from)
  if #found > 0 then
    receipts.reassign(new_owner, found)
  end
  return stale
end

-- Settle deliveries that move to another place: `move(entry, at)` writes each one there before it is removed from its
-- consumer. From `from` on each delivery has `width` arguments, its receipt first, at arguments[at]; `width` may be a
-- function of `at`.
local function settle_each(receipts, arguments, from, width, move)
  receipts.allow_writes()
  local stale, at = {}, from
  while at <= #arguments do
    local entry = receipts.held(arguments[at])
    if entry then
      move(entry, at)
      receipts.finish(entry)
    else
      stale[#stale + 1] = arguments[at]
    end
    at = at + (type(width) == 'number' and width or width(at))
  end
  return stale
end
