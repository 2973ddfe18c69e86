-- Return a text that a script is going to parse, or '' for one that no script has written, because it is too long: parsing
-- megabytes would block Redis for seconds. The script then writes the field anew.
local function short(text)
  return text and #text <= 16384 and text or ''
end
