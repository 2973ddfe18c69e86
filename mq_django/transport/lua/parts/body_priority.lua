-- Read the priority of a waiting message. Our producers write it at the beginning of the body. Other programs write it
-- anywhere among the attributes, as a number or as text.

-- How many strings and brackets are read from either end, and how many bytes at the end: large data takes no longer.
local MOST_TOKENS, MOST_BYTES = 100, 4096
local DEEPER = { ['{'] = 1, ['['] = 1, ['}'] = -1, [']'] = -1 }
-- Without its first quotation mark the name is found faster, because JSON has many of these.
local NAME = 'priority"'

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

local function number_after(text, at)
  return tonumber(string.match(text, '^%s*:%s*"?(%-?%d+)%.?0*"?%s*[,}]', at))
end

local function from_beginning(body, found)
  local depth = 0
  for first, last, deeper in tokens(body, 1) do
    depth = depth + deeper
    if first > found then
      found = string.find(body, NAME, first, true)
    end
    if not found then
      return nil
    end
    local level = first + 1 == found and depth == 1 and number_after(body, last + 1)
    if level then
      return level
    end
  end
end

local function from_end(body)
  local tail, depth, at = string.sub(body, -MOST_BYTES), 1, nil
  local found = string.find(tail, NAME, 3, true)
  while found do
    at, found = found, string.find(tail, NAME, found + 1, true)
  end
  -- After a backslash the quotation mark is part of a text.
  local level = at and string.find(tail, '^[^\\]"', at - 2) and number_after(tail, at + #NAME)
  for _, last, deeper in tokens(tail, level and at - 1 or #tail + 1) do
    depth = depth + deeper
    if depth == 0 then
      return string.find(tail, '^%s*$', last + 1) and level
    end
  end
end

-- Return the priority of a body, or 0.
local function priority_of(body)
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"'))
  local found = not level and string.find(body, NAME, 1, true)
  if found then
    level = from_beginning(body, found) or from_end(body)
  end
  return math.max(-100, math.min(100, level or 0))
end
