-- The origins of messages that were moved to a queue, for a week: where each was a dead letter. A process that was
-- killed after it had written a message leaves the dead letter, and this tells the next one not to write it again.
local MOVED_MS = 604800000

local function was_moved(moved, origin)
  return redis.call('zscore', moved, origin)
end

local function note_moved(moved, origin, now)
  redis.call('zadd', moved, string.format('%.0f', now), origin)
end

-- Remove the origins that are older than a week.
local function forget_moved(moved, now)
  redis.call('zremrangebyscore', moved, '-inf', string.format('%.0f', now - MOVED_MS))
  redis.call('pexpire', moved, MOVED_MS)
end
