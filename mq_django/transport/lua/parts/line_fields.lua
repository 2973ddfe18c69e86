-- with entry_key
-- with packed_fields
-- The messages in lines. An earlier version has put JSON there.

local function fields_in(body, id)
  if string.sub(body, 1, 1) == '{' then
    return { 'id', id, 'message', body }
  end
  return unpacked(body)
end

-- Add a message from a line to a stream. Return the error if that fails.
local function add_fields(stream, fields)
  local entry = fields and redis.pcall('xadd', stream, '*', unpack(fields))
  return type(entry) == 'table' and entry or nil
end
