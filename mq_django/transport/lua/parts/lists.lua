-- Append values to a list. None of them is nil.
local function add_all(list, ...)
  for _, value in ipairs({ ... }) do
    list[#list + 1] = value
  end
end

-- Return fields and values as a table.
local function pairs_of(flat)
  local found = {}
  for at = 1, #flat, 2 do
    found[flat[at]] = flat[at + 1]
  end
  return found
end
