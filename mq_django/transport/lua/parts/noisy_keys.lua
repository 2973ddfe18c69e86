-- with entry_key
-- with numbers
-- The keys with the most messages in an hour, as a sketch of at most 100 keys: one message of each fetch counts for all
-- messages of that fetch. Space-Saving, by Metwally, Agrawal and El Abbadi, 2005: a new key replaces the one with the lowest
-- count and inherits that count. So each key with more than a hundredth of the messages is there.
--
-- A HASH with a TTL of two hours: 'n' -> messages; hash of a key -> its count, what of that it has inherited, and the key,
-- separated by spaces.
local MOST_KEYS, LONGEST_KEY, NOISY_TTL = 100, 255, 7200

-- Return the field with the lowest count, and that count.
local function least_noisy(noisy)
  local flat, least, lowest = redis.call('hgetall', noisy), nil, nil
  for at = 1, #flat, 2 do
    local count = number_of(string.match(flat[at + 1], '^%d+'))
    if flat[at] ~= 'n' and (not lowest or count < lowest) then
      least, lowest = flat[at], count
    end
  end
  return least, lowest
end

local function note_noisy(noisy, fields, messages, hash_of)
  if redis.call('hincrby', noisy, 'n', messages) == messages then
    redis.call('expire', noisy, NOISY_TTL)
  end
  local key = #fields <= 1000 and key_of(fields)
  if not key then
    return
  end
  local hash, size, replaced = hash_of(key), redis.call('hlen', noisy), nil
  local count, inherited = string.match(redis.call('hget', noisy, hash) or '', '^(%d+) (%d+) ')
  if not count and size > 2 * MOST_KEYS then
    -- Another program has written there.
    return
  elseif not count and size > MOST_KEYS then
    replaced, count = least_noisy(noisy)
    inherited = count
  end
  count = number_of(count) + messages
  redis.call('hset', noisy, hash, string.format('%.0f %.0f %s', count, number_of(inherited), string.sub(key, 1, LONGEST_KEY)))
  if replaced then
    redis.call('hdel', noisy, replaced)
  end
end

-- Note one of the `found` messages that a fetch has taken, any one. If that fails, nothing else does.
local function note_one(noisy, taken, found, any, hash_of)
  local at = any % found + 1
  local entry = taken[1][at] or taken[2][at - #taken[1]]
  pcall(note_noisy, noisy, entry[2], found, hash_of)
end
