-- Read the usage of the limits, and the keys with parked messages. Changes nothing.
--
-- KEYS[1..12] and ARGV[1..8]: see parts/line_keys
-- KEYS[13] tags     {queue}:tags   ZSET   see lines_fetch
-- ARGV[9..10]  start, count   of the keys, in the order of their next looks; those that wait for their turn come after
--
-- Returns {now in ms, deliveries granted in the queue's window, pending deliveries, parked messages, keys with parked
-- messages, the limits that were changed as in parts/limit_changes or '', then for each of these: key, parked, granted in
-- its window, tokens (an upper bound of its running deliveries), next look in ms, hash of the key}.

-- with line_keys
-- with line_fields
-- with lists
-- with windows
-- with numbers
local function used(field, most_of, width_of)
  local free = window(redis.call('hget', limits, field), most_of, width_of, now)
  return most_of - free
end

local granted_now = rate > 0 and used('r', rate, width) or 0
local reply = {
  ms, granted_now, pending_now(), redis.call('zcount', parked, 0, '+inf'),
  redis.call('zcard', checks) + redis.call('zcard', KEYS[13]), state[1] or ''
}
local start, count = tonumber(ARGV[9]), tonumber(ARGV[10])
local found = redis.call('zrange', checks, start, start + count - 1, 'withscores')
local others = math.max(0, start - redis.call('zcard', checks))
if #found / 2 < count then
  for _, hash in ipairs(redis.call('zrange', KEYS[13], others, others + count - #found / 2 - 1)) do
    found[#found + 1], found[#found + 2] = hash, ms
  end
end
for at = 1, #found, 2 do
  if only_hashes({ found[at] })[1] then
    local hash = found[at]
    local member = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, 1)[1]
    local body = member and redis.call('hget', waiting, member)
    local fields = body and fields_in(body, '')
    local key = fields and key_of(fields) or ''
    local granted_to_key = key_rate > 0 and used('r:' .. key, key_rate, key_width) or 0
    add_all(reply, key, redis.call('zcount', parked, hash, hash), granted_to_key)
    add_all(reply, redis.call('zcount', permits, hash, hash), math.floor(number_of(found[at + 1])), hash)
  end
end
return reply
