-- Fields of an entry with those values that are longer than a page can carry replaced by their length.
local function cut(fields, longest)
  for at = 2, #fields, 2 do
    if #fields[at] > longest then
      fields[at] = #fields[at]
    end
  end
  return fields
end
