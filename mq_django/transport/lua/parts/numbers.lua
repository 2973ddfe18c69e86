-- Return a number, or 0 for anything else: other programs may write any value, also numbers beyond a double's integers.
local function number_of(text)
  local number = (type(text) ~= 'string' or #text <= 32) and tonumber(text)
  return number and number > -9007199254740992 and number < 9007199254740992 and number or 0
end

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

-- Return a text that a script is going to parse, or '' for one that no script has written, because it is too long: parsing
-- megabytes would block Redis for seconds. The script then writes the field anew.
local function short(text)
  return text and #text <= 16384 and text or ''
end
