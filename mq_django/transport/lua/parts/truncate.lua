-- Replace the values of an entry's fields that are longer than `longest` by their length.
local function truncate(fields, longest)
  for at = 2, #fields, 2 do
    if #fields[at] > longest then
      fields[at] = #fields[at]
    end
  end
  return fields
end
