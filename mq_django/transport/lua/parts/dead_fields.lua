-- Return the fields and values of a dead letter that `which` names: 'WHOLE'; 'LISTED': without traceback and history;
-- or 'TRAITS': only the fields that filters use. A value longer than `longest` bytes is replaced by its length.
local traits = { id = 1, type = 1, partitionkey = 1, time = 1, deaderror = 1 }
local histories = { deadtraceback = 1, deadstory = 1 }

local function dead_fields(values, which, longest)
  local fields = {}
  for at = 1, #values, 2 do
    local name, value = values[at], values[at + 1]
    if which == 'WHOLE' or which == 'TRAITS' and traits[name] or which == 'LISTED' and not histories[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = #value > longest and #value or value
    end
  end
  return fields
end
