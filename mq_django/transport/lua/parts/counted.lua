-- Add to a count and return what it comes to. One that is broken begins anew, and cannot end a script: no message is kept
-- from its place because of a count. It stays below 2^43, as a half of a priority's band is.
local function counted(key, field, step)
  local count = redis.pcall('hincrby', key, field, step)
  if type(count) ~= 'number' or math.abs(count) > 8796093022208 then
    redis.pcall('hset', key, field, step)
    return tonumber(step)
  end
  return count
end
