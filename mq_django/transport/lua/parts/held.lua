-- Return a function that tells whether a consumer still holds a delivery of a stream, for what is written about
-- deliveries before they are settled: of a refused outcome nothing may stay. They are settled mostly in their order, so
-- one XPENDING from the first on finds nearly all.
local function holding(stream, group, consumer, first, count)
  local held = {}
  local found = redis.pcall('xpending', stream, group, first, '+', count, consumer)
  for _, pending in ipairs(found.err and {} or found) do
    held[pending[1]] = true
  end
  return function(entry)
    if held[entry] then
      return true
    end
    local one = redis.pcall('xpending', stream, group, entry, entry, 1, consumer)
    return not one.err and #one == 1
  end
end

-- Return the ids in `arguments`: all of them; or with a stream, those whose deliveries are still held: then the
-- arguments are the group, the consumer, and for each delivery its receipt and the message's id. The receipt is the
-- entry, of a log with '@' and the group's generation behind it.
local function ids_of_held(stream, arguments)
  if not stream then
    return arguments
  end
  local ids = {}
  local first = string.match(arguments[3] or '', '^[^@]*')
  local holds = holding(stream, arguments[1], arguments[2], first, (#arguments - 2) / 2)
  for at = 3, #arguments, 2 do
    if holds(string.match(arguments[at], '^[^@]*')) then
      ids[#ids + 1] = arguments[at + 1]
    end
  end
  return ids
end
