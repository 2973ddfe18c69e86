-- Return the hash of a key of messages: the first 52 bits of its SHA-1, which a score holds exactly.
local function hash_of(key)
  return string.format('%.0f', tonumber(string.sub(redis.sha1hex(key), 1, 13), 16))
end

-- Return those members of a sorted set that can be hashes. Other programs may write anything.
local function only_hashes(members)
  local found = {}
  for _, member in ipairs(members) do
    found[#found + 1] = #member <= 17 and string.match(member, '^%d+$') or nil
  end
  return found
end
