-- What a key says need not be a number, or one that a script can reckon with: others can write there, too. Then it is 0.
local function number_of(text)
  local number = tonumber(text)
  return number and number > -9007199254740992 and number < 9007199254740992 and number or 0
end
