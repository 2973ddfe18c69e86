-- Put dead letters of another queue into this RSMQ queue, visible now and with no attempts counted.
--
-- KEYS[1]  moved     {namespace}:<queue>:mq:moved   ZSET   see parts/moved
-- KEYS[2]  zset      {namespace}:<queue>            ZSET   score: when visible, ms
-- KEYS[3]  hash      {namespace}:<queue>:Q          HASH   attributes, bodies, counts
-- KEYS[4]  notes     {namespace}:<queue>:mq:notes   HASH   id:story, and more
-- ARGV[1]  limit     messages the queue may hold; 0: no limit
-- ARGV[2]  realtime  channel that gets the number of messages, or ''
-- ARGV[3]  wake      channel that gets the new first time at which a message is visible
-- then for each message: its origin, id, length in UTF-16 units, body, and the history of its attempts, or ''
--
-- Returns for each: 'ACCEPTED', 'KNOWN' when the message of this origin was accepted before, 'EXISTS' when its id is in
-- use, or 'TOOLONG'; 'FULL' for the first one that the limit does not allow, and nothing for those after it. Or only
-- 'NOQUEUE'.

-- with types
-- with clock
-- with numbers
-- with rsmq
-- with moved
local moved, zset, hash, notes = unpack(KEYS)
check_types({ [moved] = 'zset', [zset] = 'zset', [hash] = 'hash', [notes] = 'hash' })
local _, _, maxsize = attributes(hash)
if not maxsize then
  return 'NOQUEUE'
end

local limit, now, reply = tonumber(ARGV[1]), now_ms(), {}
local visible, accepted = string.format('%.0f', now), false

local function accept(origin, id, length, body, history)
  if was_moved(moved, origin) then
    return 'KNOWN'
  elseif redis.call('hexists', hash, id) == 1 then
    return 'EXISTS'
  elseif maxsize ~= -1 and tonumber(length) > maxsize then
    return 'TOOLONG'
  elseif limit > 0 and redis.call('zcard', zset) >= limit then
    return 'FULL'
  end
  redis.call('zadd', zset, visible, id)
  redis.call('hset', hash, id, body)
  if history ~= '' then
    redis.call('hset', notes, id .. ':story', history)
  end
  note_moved(moved, origin, now)
  increment(hash, 'totalsent', 1)
  if ARGV[2] ~= '' then
    redis.call('publish', ARGV[2], redis.call('zcard', zset))
  end
  accepted = true
  return 'ACCEPTED'
end

for at = 4, #ARGV, 5 do
  local word = accept(unpack(ARGV, at, at + 4))
  reply[#reply + 1] = word
  if word == 'FULL' then
    break
  end
end
forget_moved(moved, now)
if accepted then
  redis.call('publish', ARGV[3], 'due ' .. visible)
end
return reply
