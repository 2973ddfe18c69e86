-- with entry_key
-- The fields of an entry as one text, for a message that waits in a line: each name and value as a netstring, which is
-- its length in bytes, ':', its bytes and ','. Exact for any bytes, also of messages that cannot be decoded.

local function packed(fields)
  local parts = {}
  for at = 1, #fields do
    parts[at] = #fields[at] .. ':' .. fields[at] .. ','
  end
  return table.concat(parts)
end

-- Return the fields in a packed text, or nil when it is none.
local function unpacked(text)
  local fields, at = {}, 1
  while at <= #text do
    local _, colon, size = string.find(text, '^(%d+):', at)
    if not colon or #size > 9 or #fields >= 2000 then
      return nil
    end
    fields[#fields + 1] = string.sub(text, colon + 1, colon + size)
    at = colon + size + 2
  end
  return #fields > 0 and #fields % 2 == 0 and fields or nil
end

-- The messages in lines. Another program may have put anything there: that becomes a message that cannot be decoded, and is
-- not lost.

local function fields_in(body, id)
  return unpacked(body) or { 'id', id, 'message', body }
end

-- Add a message from a line to a stream. Return the error if that fails.
local function add_fields(stream, fields)
  local entry = fields and redis.pcall('xadd', stream, '*', unpack(fields))
  return type(entry) == 'table' and entry or nil
end
