-- Find messages of an ordered queue that another program has read without `lines_fetch`: they have a key, were delivered,
-- and have no token. Scripts give a token in the same step in which they deliver, so no moment is in between.
--
-- KEYS[1]  control  {queue}:control   HASH     ordered: '1' while the queue has order; check:order: when this was last
--                                              found, ms; damage: see stream_check
-- KEYS[2]  permits  {queue}:permits   ZSET     see parts/tokens
-- KEYS[3]  ready    {queue}:ready     STREAM
-- KEYS[4]  urgent   {queue}:urgent    STREAM
-- ARGV[1]  group
-- ARGV[2]  repeat   after this time, ms, what is still found is returned again
--
-- Returns {} or {{'UNORDERED', stream, number of messages, consumer}}: the first consumer that holds one, and how many
-- were found. Of 100 consumers of each stream 10 messages are looked at, and 3 without a token are read.

-- with entry_key
-- with numbers
-- with tokens
-- with types
local control, permits, group = KEYS[1], KEYS[2], ARGV[1]
local wrong = wrong_type({ [control] = 'hash', [permits] = 'zset' })
if wrong then
  return wrong
end
if redis.call('hget', control, 'ordered') ~= '1' then
  return {}
end

-- Return how many messages with a key, but without a token, a consumer holds. One without a key needs none.
local function without_token(stream, consumer)
  local count, looks = 0, 3
  for _, row in ipairs(redis.call('xpending', stream, group, '-', '+', 10, consumer)) do
    if looks > 0 and not redis.call('zscore', permits, token_of(stream, row[1])) then
      local entry = redis.call('xrange', stream, row[1], row[1])[1]
      looks = looks - 1
      count = count + (entry and #entry[2] <= 1000 and key_of(entry[2]) and 1 or 0)
    end
  end
  return count
end

local found
for n = 3, 4 do
  -- Fails if the stream or the group does not exist.
  local consumers = redis.pcall('xinfo', 'consumers', KEYS[n], group)
  for at = 1, consumers.err and 0 or math.min(100, #consumers) do
    -- Name and pending count are the second and fourth element in every version of Redis.
    local name, pending = consumers[at][2], consumers[at][4]
    local count = pending > 0 and without_token(KEYS[n], name) or 0
    if count > 0 then
      found = found or { 'UNORDERED', KEYS[n], 0, name }
      found[3] = found[3] + count
    end
  end
end

local now, last = now_ms(), number_of(redis.call('hget', control, 'check:order'))
if not found or (last > now - tonumber(ARGV[2]) and last <= now) then
  return {}
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too.
redis.call('hdel', control, '')
redis.call('hset', control, 'check:order', now, 'damage', string.format('%.0f UNORDERED %.0f', now, found[3]))
return { found }
