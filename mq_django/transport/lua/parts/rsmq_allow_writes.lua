-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
-- This one removes nothing.
local function allow_writes(zset)
  redis.call('zremrangebyrank', zset, 1, 0)
end
