-- with entry_key
-- with numbers
-- The keys with the most messages in an hour, as a sketch of at most 100 keys: one message of each fetch counts for all
-- messages of that fetch. Space-Saving, by Metwally, Agrawal and El Abbadi, 2005: a new key replaces the one with the lowest
-- count and inherits that count. So each key with more than a hundredth of the messages is there.
--
-- A HASH with a TTL of two hours: 'n' -> messages; 'f' -> fetches; hash of a key -> its count, what of that it has
-- inherited, and the key, separated by spaces; 'l' -> the lowest count, and hashes of keys that had it at the last scan.
local MOST_KEYS, LONGEST_KEY, NOISY_TTL = 100, 255, 7200
-- So many keys are noted in 'l', so that few fetches have to scan all.
local MOST_LEAST = 20

-- Return the fields with the lowest count, and that count.
local function scan_least(noisy)
  local flat, least, lowest = redis.call('hgetall', noisy), {}, nil
  for at = 1, #flat, 2 do
    local count = number_of(string.match(flat[at + 1], '^%d+'))
    if #flat[at] > 1 and (not lowest or count < lowest) then
      least, lowest = { flat[at] }, count
    elseif count == lowest and #flat[at] > 1 and #least < MOST_LEAST then
      least[#least + 1] = flat[at]
    end
  end
  return least, lowest
end

-- Return a field with the lowest count, that count, and the new value of 'l'. Counts only grow, so one that still has the
-- lowest count of the last scan has it now.
local function least_noisy(noisy)
  local known = redis.call('hget', noisy, 'l') or ''
  local lowest = string.match(known, '^%d+ ')
  for field, after in string.gmatch(lowest and #known <= 20 * MOST_LEAST and known or '', ' (%d+)()') do
    local value = redis.call('hget', noisy, field)
    if value and string.sub(value, 1, #lowest) == lowest then
      return field, number_of(lowest), lowest .. string.sub(known, after + 1)
    end
  end
  local least, count = scan_least(noisy)
  return least[1], count, string.format('%.0f ', count) .. table.concat(least, ' ', 2)
end

-- Count messages of a key.
local function note_key(noisy, key, hash, messages)
  local size = redis.call('hlen', noisy)
  local count, inherited = string.match(redis.call('hget', noisy, hash) or '', '^(%d+) (%d+) ')
  if not count and size > 2 * MOST_KEYS then
    -- Another program has written there.
    return
  end
  local replaced, left
  if not count and size >= MOST_KEYS + 2 then
    replaced, inherited, left = least_noisy(noisy)
    count = inherited
    redis.call('hset', noisy, 'l', left)
  end
  count = number_of(count) + messages
  redis.call('hset', noisy, hash, string.format('%.0f %.0f %s', count, number_of(inherited), string.sub(key, 1, LONGEST_KEY)))
  if replaced then
    redis.call('hdel', noisy, replaced)
  end
end

local function note_noisy(noisy, fields, messages, hash_of)
  redis.call('hincrby', noisy, 'f', 1)
  if redis.call('hincrby', noisy, 'n', messages) == messages then
    redis.call('expire', noisy, NOISY_TTL)
  end
  local key = #fields <= 1000 and key_of(fields)
  if key then
    note_key(noisy, key, hash_of(key), messages)
  end
end

-- Note one of the `found` messages that a fetch has taken, any one. If that fails, nothing else does.
local function note_one(noisy, taken, found, any, hash_of)
  local at = any % found + 1
  local entry = taken[1][at] or taken[2][at - #taken[1]]
  pcall(note_noisy, noisy, entry[2], found, hash_of)
end
