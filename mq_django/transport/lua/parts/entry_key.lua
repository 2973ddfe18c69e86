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
