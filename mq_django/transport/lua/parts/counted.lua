-- with count
-- Count deliveries in the script that settles them: so each is counted once, whichever process dies and when, and
-- however often a batch is sent again.

-- Remove the counters from the arguments of a script and return them, or nil if it has not got the keys of counters.
-- They are the last arguments: the slot in `minutes`, the slot in `hours`; for each run of deliveries, in the order of
-- these, how many, their name, and what they count as, such as 'handled t3'; and last the number of all of these.
local function take_counters(arguments, minutes, hours)
  if not hours then
    return nil
  end
  local size = table.remove(arguments)
  local from = #arguments - size + 1
  local counters = { minutes = minutes, hours = hours, minute = arguments[from], hour = arguments[from + 1] }
  for at = from + 2, #arguments, 3 do
    counters[#counters + 1] = { size = tonumber(arguments[at]), name = arguments[at + 1], kinds = arguments[at + 2] }
  end
  for at = #arguments, from, -1 do
    arguments[at] = nil
  end
  return counters
end

local function add_counts(counters, settled)
  local counts = {}
  for place, n in pairs(settled) do
    local run = counters[place]
    for kind in string.gmatch(run.kinds, '%S+') do
      counts[kind] = counts[kind] or {}
      counts[kind][run.name] = (counts[kind][run.name] or 0) + n
    end
  end
  for kind, by_name in pairs(counts) do
    count(counters.minutes, counters.minute, counters.hours, counters.hour, kind, by_name)
  end
end

-- Call `settle` with receipts and more arguments, and count what it settles, also when it fails in the middle. It calls
-- `held` once for each delivery, in order, and `finish` for all held ones since the last call.
local function counted(receipts, counters, settle, ...)
  if not counters then
    return settle(receipts, ...)
  end
  local held, finish, place, left, taken, settled = receipts.held, receipts.finish, 0, 0, {}, {}
  receipts.held = function(receipt)
    while left == 0 do
      place = place + 1
      left = counters[place].size
    end
    left = left - 1
    local entry = held(receipt)
    if entry then
      taken[place] = (taken[place] or 0) + 1
    end
    return entry
  end
  receipts.finish = function(...)
    finish(...)
    for at, n in pairs(taken) do
      settled[at], taken[at] = (settled[at] or 0) + n, nil
    end
  end
  local is_done, reply = pcall(settle, receipts, ...)
  add_counts(counters, settled)
  if not is_done then
    error(reply, 0)
  end
  return reply
end
