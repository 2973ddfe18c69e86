-- with clock
-- Which ids others took the place of under their unique keys, for a day.
local function note_replaced(replaced, id, now)
  redis.call('zadd', replaced, now, id)
  -- Ten thousand, so that a signal that fires a thousand times a second cannot fill the memory in its day.
  redis.call('zremrangebyrank', replaced, 0, -10001)
  redis.call('expire', replaced, 86400)
end

local function was_replaced(replaced, id)
  local at = redis.call('zscore', replaced, id)
  return at and tonumber(at) > now_ms() - 86400000
end
