-- Return an error when a key has another type than expected.
local function wrong_type(kinds)
  for key, kind in pairs(kinds) do
    local found = redis.call('type', key).ok
    if found ~= 'none' and found ~= kind then
      return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
    end
  end
end

-- Raise that error. Called before the first write, because Redis does not roll scripts back.
local function check_types(kinds)
  local wrong = wrong_type(kinds)
  if wrong then
    error(wrong)
  end
end

-- Return a key that another program may have made something else: then nil, because no message must wait for it.
local function usable(key, kind)
  local found = key and redis.call('type', key).ok
  return (found == kind or found == 'none') and key or nil
end
