-- What waits does so under its id. Who publishes chooses the id, so that another one may wait under it: then it gets a
-- member of its own, `p:@` and a number, and its body says the id.
local others = 0

-- Store a body and return the member to wait under.
local function put_body(waiting, id, body)
  if redis.call('hsetnx', waiting, id, body) == 1 then
    return id
  end
  local time, member = redis.call('time'), nil
  body = string.sub(body, 1, -2) .. ',"id":' .. cjson.encode(id) .. '}'
  repeat
    others = others + 1
    member = string.format('p:@%.0f-%d', time[1] * 1000000 + time[2], others)
  until redis.call('hsetnx', waiting, member, body) == 1
  return member
end

-- Return the id of a message that waits, or nil when its body says it.
local function id_of(member)
  return string.sub(member, 1, 3) ~= 'p:@' and member or nil
end

-- Add a message to a stream. Return the error, if there is one: then it is not in there.
local function add_entry(stream, id, body)
  local entry
  if id then
    entry = redis.pcall('xadd', stream, '*', 'id', id, 'message', body)
  else
    entry = redis.pcall('xadd', stream, '*', 'message', body)
  end
  if type(entry) == 'table' then
    entry.err = entry.err .. ' (' .. stream .. ')'
    return entry
  end
end
