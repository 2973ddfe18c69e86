-- with body_attributes
-- The key of a message in an entry. The field `partitionkey` overrides the attribute in the object of `message`.

-- Return the text or number at a position of JSON as text.
local function text_after(text, at)
  local first = string.match(text, '^%s*:%s*()"', at)
  if not first then
    return string.match(text, '^%s*:%s*(%-?%d+)%s*[,}]', at)
  end
  -- A key has at most 255 characters. No text is read much further.
  local last, left = first, 1000
  repeat
    local _, found, mark = string.find(text, '(["\\])', last + 1)
    last, left = mark == '\\' and found + 1 or found, left - 1
  until mark ~= '\\' or not last or left == 0
  local is_done, decoded = pcall(cjson.decode, last and last - first < 65536 and '[' .. string.sub(text, first, last) .. ']')
  return is_done and decoded[1] or nil
end

-- Return the key of a message by the fields of its entry, or nil.
local function key_of(fields)
  local key, body
  for at = 1, #fields, 2 do
    if fields[at] == 'partitionkey' then
      key = fields[at + 1]
    elseif fields[at] == 'message' then
      body = fields[at + 1]
    end
  end
  return key or body and attribute_of(body, 'partitionkey"', text_after)
end

-- Add the time of publication to the fields of an entry that has it only in its id, before the message gets another one.
local function keep_time(fields, entry)
  for at = 1, #fields, 2 do
    if fields[at] == 'time' or fields[at] == 'message' and string.find(fields[at + 1], '"time":', 1, true) then
      return
    end
  end
  fields[#fields + 1], fields[#fields + 2] = 'time', string.match(entry, '^%d+')
end

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
