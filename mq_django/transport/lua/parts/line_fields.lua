-- with entry_key
-- with packed_fields
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
