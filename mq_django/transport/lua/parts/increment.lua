-- Add to a count and return the sum. A count that is not a number restarts at `step` instead of failing the script.
-- Counts stay below 2^43, half of a priority's band.
local function increment(key, field, step)
  local count = redis.pcall('hincrby', key, field, step)
  if type(count) ~= 'number' or math.abs(count) > 8796093022208 then
    redis.pcall('hset', key, field, step)
    return tonumber(step)
  end
  return count
end
