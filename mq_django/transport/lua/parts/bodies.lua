-- with clock
-- A waiting message has its id as member. Publishers may choose ids, so the id may be in use: then the message gets a
-- member of its own, `p:@` and a number, and its body contains the id.
local suffix = 0

-- Store a body and return the message's member.
local function put_body(waiting, id, body)
  if redis.call('hsetnx', waiting, id, body) == 1 then
    return id
  end
  local micros, member = now_us(), nil
  -- Other programs may write white space after the object.
  body = (string.match(body, '^(.*)}') or body) .. ',"id":' .. cjson.encode(id) .. '}'
  repeat
    suffix = suffix + 1
    member = string.format('p:@%.0f-%d', micros, suffix)
  until redis.call('hsetnx', waiting, member, body) == 1
  return member
end

-- Return the id of a waiting message, or nil when its body contains it.
local function id_of(member)
  return string.sub(member, 1, 3) ~= 'p:@' and member or nil
end

-- Add a message to a stream. Return the error if that fails.
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
