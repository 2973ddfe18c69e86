-- with clock
-- The ids of messages that were replaced under their unique keys, for a day.
local function note_replaced(replaced, id, now)
  redis.call('zadd', replaced, now, id)
  -- At most 10,000, so that a key that is replaced a thousand times a second cannot fill the memory.
  redis.call('zremrangebyrank', replaced, 0, -10001)
  redis.call('expire', replaced, 86400)
end

local function was_replaced(replaced, id)
  local at = redis.call('zscore', replaced, id)
  return at and tonumber(at) > now_ms() - 86400000
end
