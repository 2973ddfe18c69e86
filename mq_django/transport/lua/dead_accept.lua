-- Put dead letters of another queue into this one, ready and with no attempts counted.
--
-- KEYS     as named: moved   {queue}:moved   ZSET   the origins of messages that were moved here, for a week: where each was a
--                            dead letter. A process that was killed after it had written a message leaves the dead letter, and
--                            this tells the next one not to write it again
--          and ready, front, waiting; or in RSMQ's format zset, hash, notes
-- ARGV[1]  names     of the keys, separated by spaces
-- ARGV[2]  limit     messages the queue may hold; 0: no limit
-- ARGV[3]  realtime  in RSMQ's format: the channel that gets the number of messages, or ''
-- ARGV[4]  wake      in RSMQ's format: the channel that gets the new first time at which a message is visible
-- then for each message: its origin, id and body; in RSMQ's format also its length in UTF-16 units, and the history of its
-- attempts, or ''
--
-- Returns for each: 'ACCEPTED'; 'KNOWN' when the message of this origin was accepted before; in RSMQ's format 'EXISTS' when its
-- id is in use, or 'TOOLONG'; 'FULL' for the first one that the limit does not allow, and nothing for those after it. Or only
-- 'NOQUEUE', in RSMQ's format.

-- with clock
-- with named
-- with bodies
-- with rsmq
local at, limit, now = keys_named(ARGV[1]), tonumber(ARGV[2]), now_ms()
local visible, width, week = string.format('%.0f', now), at.zset and 5 or 3, 604800000
check_keys(at, { moved = 'zset' })
local maxsize
if at.zset then
  check_keys(at, { zset = 'zset', hash = 'hash', notes = 'hash' })
  maxsize = select(3, attributes(at.hash))
  if not maxsize then
    return 'NOQUEUE'
  end
else
  check_keys(at, { ready = 'stream', front = 'stream', waiting = 'hash' })
end

local function depth()
  if at.zset then
    return redis.call('zcard', at.zset)
  end
  return redis.call('xlen', at.ready) + redis.call('xlen', at.front) + redis.call('hlen', at.waiting)
end

-- Return why a message is not accepted, or nil.
local function refusal(origin, id, length)
  if redis.call('zscore', at.moved, origin) then
    return 'KNOWN'
  elseif at.zset and redis.call('hexists', at.hash, id) == 1 then
    return 'EXISTS'
  elseif at.zset and maxsize ~= -1 and tonumber(length) > maxsize then
    return 'TOOLONG'
  end
  return limit > 0 and depth() >= limit and 'FULL' or nil
end

-- Write a message. Return the error if that fails.
local function write(id, body, history)
  if not at.zset then
    return add_entry(at.ready, id, body)
  end
  redis.call('zadd', at.zset, visible, id)
  redis.call('hset', at.hash, id, body)
  if history ~= '' then
    redis.call('hset', at.notes, id .. ':story', history)
  end
  increment(at.hash, 'totalsent', 1)
  if ARGV[3] ~= '' then
    redis.call('publish', ARGV[3], depth())
  end
end

local reply, failed, accepted = {}, nil, false
for i = 5, #ARGV, width do
  local origin, id, body, length, history = unpack(ARGV, i, i + width - 1)
  local word = refusal(origin, id, length)
  if not word then
    failed = write(id, body, history)
    if failed then
      break
    end
    redis.call('zadd', at.moved, visible, origin)
    accepted = true
  end
  reply[#reply + 1] = word or 'ACCEPTED'
  if word == 'FULL' then
    break
  end
end
redis.call('zremrangebyscore', at.moved, '-inf', string.format('%.0f', now - week))
redis.call('pexpire', at.moved, week)
if at.zset and accepted then
  redis.call('publish', ARGV[4], 'due ' .. visible)
end
return failed or reply
