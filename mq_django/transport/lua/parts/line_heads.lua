-- with bodies
-- with tokens
-- with undelivered
-- Add the entry of a message that goes before all that is ready, and return the stream and the entry, or nil and the
-- error.
local function add_first(ready, front, group, fields)
  local target = #undelivered(ready, group, 1) > 0 and front or ready
  local entry = redis.pcall('xadd', target, '*', unpack(fields))
  if type(entry) == 'table' then
    return nil, entry
  end
  if target == front then
    -- Not before the first write: when memory is out, XGROUP CREATE fails.
    redis.pcall('xgroup', 'create', front, group, '0')
  end
  return target, entry
end

-- Return a function like `make_ready`, which also knows messages that are the heads of their keys: they keep their token.
local function with_heads(make_ready, permits, ready, front, group)
  if redis.call('exists', permits) == 0 then
    return make_ready
  end
  return function(id, body, member)
    if not redis.call('zscore', permits, 'm-' .. member) then
      return make_ready(id, body, member)
    end
    local target, entry = add_first(ready, front, group, id and { 'id', id, 'message', body } or { 'message', body })
    if not target then
      return entry
    end
    pass_token(permits, 'm-' .. member, token_of(target, entry))
  end
end
