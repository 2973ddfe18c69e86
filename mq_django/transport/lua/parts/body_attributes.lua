-- Read attributes of a waiting message without decoding its body. Our producers write them at the beginning of the
-- body. Other programs write them anywhere among the attributes.

-- How many strings and brackets are read from either end, and how many bytes at the end: large data takes no longer.
local MOST_TOKENS, MOST_BYTES = 100, 4096
local DEEPER = { ['{'] = 1, ['['] = 1, ['}'] = -1, [']'] = -1 }

-- Iterate over the strings and brackets of JSON text from a position that is not in a string: first and last position,
-- and by how much a bracket changes the depth.
local function tokens(text, at)
  local left = MOST_TOKENS
  return function()
    local first, last, char = string.find(text, '(["{}%[%]])', at)
    while char == '"' and last and left > 0 do
      left = left - 1
      local _, found, mark = string.find(text, '(["\\])', last + 1)
      last = mark == '\\' and found + 1 or found
      char = mark == '\\' and '"' or nil
    end
    left = left - 1
    if last and left > 0 then
      at = last + 1
      return first, last, DEEPER[char] or 0
    end
  end
end

local function from_beginning(body, name, found, value_after)
  local depth = 0
  for first, last, deeper in tokens(body, 1) do
    depth = depth + deeper
    if first > found then
      found = string.find(body, name, first, true)
    end
    if not found then
      return nil
    end
    local value = first + 1 == found and depth == 1 and value_after(body, last + 1)
    if value then
      return value
    end
  end
end

local function from_end(body, name, value_after)
  local tail, depth, at = string.sub(body, -MOST_BYTES), 1, nil
  local found = string.find(tail, name, 3, true)
  while found do
    at, found = found, string.find(tail, name, found + 1, true)
  end
  -- After a backslash the quotation mark is part of a text.
  local value = at and string.find(tail, '^[^\\]"', at - 2) and value_after(tail, at + #name)
  for _, last, deeper in tokens(tail, value and at - 1 or #tail + 1) do
    depth = depth + deeper
    if depth == 0 then
      return string.find(tail, '^%s*$', last + 1) and value
    end
  end
end

-- Return the value of an attribute, or nil. `name` is without its first quotation mark: so it is found faster, because
-- JSON has many of these. `value_after(text, at)` returns the value that follows at a position, if it is valid.
local function attribute_of(body, name, value_after)
  local found = string.find(body, name, 1, true)
  return found and (from_beginning(body, name, found, value_after) or from_end(body, name, value_after)) or nil
end
