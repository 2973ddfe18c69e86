-- Return the fields of an entry that is given back, with what its message brings along to its new entry. ARGV[at] is its
-- receipt; behind it stand the message's id and time, and 'lost', 'suspect' or ''.
local function again(fields, at)
  local there = {}
  for i = 1, #fields, 2 do
    there[fields[i]] = true
  end
  local function add(name, value)
    if value ~= '' and not there[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  add('id', ARGV[at + 1])
  add('time', ARGV[at + 2])
  if ARGV[at + 3] == 'lost' then
    add(there.lost and 'alone' or 'lost', '1')
  elseif ARGV[at + 3] == 'suspect' then
    add('alone', 'suspect')
  end
  return fields
end
