-- with settle
-- Return the fields of the new entry of a returned message: those of the old one, its id and time, and a mark. 'lost':
-- the consumer's machine failed; the second time the message has to run alone. 'suspect': the message was one of
-- several that ran when their process died; it has to run alone.
local function returned_fields(fields, id, time, mark)
  local present = {}
  for i = 1, #fields, 2 do
    present[fields[i]] = true
  end
  local function add(name, value)
    if value ~= '' and not present[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  add('id', id)
  add('time', time)
  if mark == 'lost' then
    add(present.lost and 'alone' or 'lost', '1')
  elseif mark == 'suspect' then
    add('alone', 'suspect')
  end
  return fields
end

-- Return deliveries to a stream. No attempt is counted. The arguments are the group, the consumer, and for each
-- delivery: its receipt, the message's id and time, and 'lost', 'suspect' or ''.
local function hand_back(receipts, stream, arguments)
  return settle_each(receipts, arguments, 3, 4, function(entry, at)
    local fields = receipts.fields(entry)
    if fields then
      local returned = redis.call('xadd', stream, '*', unpack(returned_fields(fields, unpack(arguments, at + 1, at + 3))))
      if receipts.pass then
        receipts.pass(entry, receipts.token_of(stream, returned))
      end
    end
  end)
end
