-- Make a write that is allowed when memory is out: after it the others are, too, so that a full Redis can be emptied. It
-- removes nothing.
local function allow_writes(zset)
  redis.call('zremrangebyrank', zset, 1, 0)
end
