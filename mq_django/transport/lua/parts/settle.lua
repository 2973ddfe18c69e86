-- Settle deliveries by receipts, a table of functions:
--   held(receipt)             return the entry if the consumer still holds this delivery
--   finish(entry, ...)        take entries from the consumer: they are settled
--   pass(new_owner, entries)  let another consumer hold entries
--   allow_writes()            make a write that is allowed when memory is out: after it the others are, too, so that a
--                             full Redis can be emptied
-- What the consumer no longer holds is left as it is, and its receipts are returned.

local function held_and_stale(receipts, arguments, from)
  local held, stale = {}, {}
  for at = from, #arguments do
    local entry = receipts.held(arguments[at])
    local list = entry and held or stale
    list[#list + 1] = entry or arguments[at]
  end
  return held, stale
end

-- Settle deliveries that are done: from `from` on the arguments are their receipts.
local function settle_done(receipts, arguments, from)
  local done, stale = held_and_stale(receipts, arguments, from)
  if #done > 0 then
    receipts.finish(unpack(done))
  end
  return stale
end

-- Pass deliveries on to another consumer, or to the same one to keep them its own, uncounted: likewise.
local function pass_on(receipts, new_owner, arguments, from)
  local passed, stale = held_and_stale(receipts, arguments, from)
  if #passed > 0 then
    receipts.pass(new_owner, passed)
  end
  return stale
end

-- Settle deliveries that go on elsewhere: `move(entry, at)` writes one to its new place before it is taken from its
-- consumer. From `from` on there are for each its receipt, arguments[at], and what belongs to it: `width` arguments in
-- all, or a function of `at` that tells how many.
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
