-- Return a number, or 0 for anything else: other programs may write any value, also numbers beyond a double's integers.
local function number_of(text)
  local number = (type(text) ~= 'string' or #text <= 32) and tonumber(text)
  return number and number > -9007199254740992 and number < 9007199254740992 and number or 0
end
