-- Append values to a list. None of them is nil.
local function add_all(list, ...)
  for _, value in ipairs({ ... }) do
    list[#list + 1] = value
  end
end
