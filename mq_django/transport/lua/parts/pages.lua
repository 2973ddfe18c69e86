-- Replace the values of an entry's fields that are longer than `longest` by their length.
local function truncate(fields, longest)
  for at = 2, #fields, 2 do
    if #fields[at] > longest then
      fields[at] = #fields[at]
    end
  end
  return fields
end

-- Call `add` with entries of a stream, up to `limit` of a range as in XRANGE, and return 1 if there may be more of them: to
-- read 100 MB blocks Redis for a second, so it ends after the entry with which they have 4 MB.
local function each_in_range(command, stream, from, to, limit, add)
  local at_once, most, size = 5, 4 * 1024 * 1024, 0
  while limit > 0 and size < most do
    local count = math.min(limit, at_once)
    local entries = redis.pcall(command, stream, from, to, 'count', count)
    if entries.err then
      -- Nothing follows the largest id, and that is an error.
      return size > 0 and 0 or error(entries, 0)
    end
    for _, found in ipairs(entries) do
      for _, text in ipairs(found[2]) do
        size = size + #text
      end
      add(found[1], found[2])
    end
    if #entries < count then
      return 0
    end
    limit, from = limit - count, '(' .. entries[count][1]
  end
  return limit > 0 and 1 or 0
end

-- Return the fields and values of a dead letter that `which` names: 'WHOLE'; 'LISTED': without traceback and history;
-- or 'TRAITS': only the fields that filters use. A value longer than `longest` bytes is replaced by its length.
local traits = { id = 1, type = 1, partitionkey = 1, time = 1, deaderror = 1 }
local histories = { deadtraceback = 1, deadstory = 1 }

local function dead_fields(values, which, longest)
  local fields = {}
  for at = 1, #values, 2 do
    local name, value = values[at], values[at + 1]
    if which == 'WHOLE' or which == 'TRAITS' and traits[name] or which == 'LISTED' and not histories[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = #value > longest and #value or value
    end
  end
  return fields
end

-- Return a body in a hash, its length if that is more than `longest` bytes, or -1 for none.
local function body_or_length(hash, member, longest)
  local length = redis.call('hstrlen', hash, member)
  if length == 0 then
    return -1
  end
  return length <= longest and redis.call('hget', hash, member) or length
end
