-- Put dead letters of another queue into this one: ready, or delayed if they are due later.
--
-- KEYS     as named: moved   {queue}:moved   ZSET   the origins of messages that were moved here, for a week: where each was a
--                            dead letter. A process that was killed after it had written a message leaves the dead letter, and
--                            this tells the next one not to write it again
--          and ready, front, waiting, due, unique; or in RSMQ's format zset, hash, notes
-- ARGV[1]  names     of the keys, separated by spaces
-- ARGV[2]  limit     messages the queue may hold; 0: no limit
-- ARGV[3]  realtime  in RSMQ's format: the channel that gets the number of messages, or ''
-- ARGV[4]  wake      the channel that gets the new first due time, or first time at which a message is visible
-- then for each message: its origin, id, body, and when it is due, in ms since 1970, or ''; then the member under which a
-- delayed one waits, its id or 'u:' and its unique key; or in RSMQ's format its length in UTF-16 units, and the history of its
-- attempts, or ''
--
-- Returns for each: 'ACCEPTED'; 'KNOWN' when the message of this origin was accepted before; 'TAKEN' when its unique key is
-- that of another one that waits; in RSMQ's format 'EXISTS' when its id is in use, or 'TOOLONG'; 'FULL' for the first one that the limit
-- does not allow, and nothing for those after it. Or only 'NOQUEUE', in RSMQ's format.

-- with clock
-- with named
-- with bodies
-- with due_times
-- with rsmq
local at, limit, now = keys_named(ARGV[1]), tonumber(ARGV[2]), now_ms()
local visible, width, week = string.format('%.0f', now), at.zset and 6 or 5, 604800000
check_keys(at, { moved = 'zset' })
local maxsize
if at.zset then
  check_keys(at, { zset = 'zset', hash = 'hash', notes = 'hash' })
  maxsize = select(3, attributes(at.hash))
  if not maxsize then
    return 'NOQUEUE'
  end
else
  check_keys(at, { ready = 'stream', front = 'stream', waiting = 'hash', due = 'zset', unique = 'hash' })
end

local function depth()
  if at.zset then
    return redis.call('zcard', at.zset)
  end
  return redis.call('xlen', at.ready) + redis.call('xlen', at.front) + redis.call('hlen', at.waiting)
end

-- Return whether a message has a unique key with which it waits, and another one waits with this.
local function is_taken(id, member)
  return member ~= id and redis.call('hexists', at.waiting, member) == 1
end

-- Return why a message is not accepted, or nil. `length` is that, or the member of a delayed one.
local function refusal(origin, id, is_late, length)
  if redis.call('zscore', at.moved, origin) then
    return 'KNOWN'
  elseif at.zset and redis.call('hexists', at.hash, id) == 1 then
    return 'EXISTS'
  elseif at.zset and maxsize ~= -1 and tonumber(length) > maxsize then
    return 'TOOLONG'
  elseif not at.zset and is_late and is_taken(id, length) then
    return 'TAKEN'
  end
  return limit > 0 and depth() >= limit and 'FULL' or nil
end

-- Write a message that is due later.
local function delay(id, body, due, member)
  if member == id then
    redis.call('zadd', at.due, due, put_body(at.waiting, id, body))
    return
  end
  redis.call('hset', at.waiting, member, body)
  redis.call('zadd', at.due, due, member)
  redis.call('hset', at.unique, member, id, id, member)
end

-- Write a message. Return the error if that fails.
local function write(id, body, due, more, history)
  if not at.zset and due then
    return delay(id, body, due, more)
  elseif not at.zset then
    return add_entry(at.ready, id, body)
  end
  redis.call('zadd', at.zset, due or visible, id)
  redis.call('hset', at.hash, id, body)
  if history ~= '' then
    redis.call('hset', at.notes, id .. ':story', history)
  end
  increment(at.hash, 'totalsent', 1)
  if ARGV[3] ~= '' then
    redis.call('publish', ARGV[3], depth())
  end
end

local reply, failed, accepted, before = {}, nil, false, first_due(at.zset or at.due)
for i = 5, #ARGV, width do
  local origin, id, body, score, more, history = unpack(ARGV, i, i + width - 1)
  local is_late = score ~= '' and tonumber(score) > now
  local word = refusal(origin, id, is_late, more)
  if not word then
    failed = write(id, body, is_late and score or nil, more, history)
    if failed then
      break
    end
    redis.call('zadd', at.moved, visible, origin)
    accepted = accepted or not is_late
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
else
  wake_if_earlier(at.zset or at.due, before, ARGV[4])
end
return failed or reply
