-- with settle
-- Return the fields of an entry that is given back, with what its message brings along to its new entry: its id and time,
-- and a note by what became of its consumer.
local function again(fields, id, time, what)
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
  add('id', id)
  add('time', time)
  if what == 'lost' then
    add(there.lost and 'alone' or 'lost', '1')
  elseif what == 'suspect' then
    add('alone', 'suspect')
  end
  return fields
end

-- Give deliveries back to a stream, uncharged. The arguments are the group, the consumer, and for each delivery: its
-- receipt, the message's id and time, and 'lost', 'suspect' or ''.
local function hand_back(receipts, stream, arguments)
  return settle_each(receipts, arguments, 3, 4, function(entry, at)
    local fields = receipts.fields(entry)
    if fields then
      redis.call('xadd', stream, '*', unpack(again(fields, unpack(arguments, at + 1, at + 3))))
    end
  end)
end
