-- Return the hash of a key of messages: the first 52 bits of its SHA-1, which a score holds exactly.
local function hash_of(key)
  return string.format('%.0f', tonumber(string.sub(redis.sha1hex(key), 1, 13), 16))
end
