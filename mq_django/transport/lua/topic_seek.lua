-- Move a group to another place of its topic's log.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  control  {topic}:g:<group>:control   HASH    log-generation
-- ARGV[1]  group
-- ARGV[2]  after    the entry after which it goes on: '0' for the beginning, '$' for the end
--
-- Returns {'MOVED', the entry after which it goes on}, or 'MISSING' when there is no such group.

local log, control = unpack(KEYS)
local found = redis.call('type', control).ok
if found ~= 'none' and found ~= 'hash' then
  return redis.error_reply('WRONGTYPE ' .. control .. ' holds a ' .. found)
end
local groups = redis.call('exists', log) == 1 and redis.call('xinfo', 'groups', log) or {}
local is_there = false
for _, group in ipairs(groups) do
  is_there = is_there or group[2] == ARGV[1]
end
if not is_there then
  return 'MISSING'
end

local after = ARGV[2]
if after == '$' then
  local info = redis.call('xinfo', 'stream', log)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      after = info[i + 1]
    end
  end
end
-- Made anew, and not moved: that acks all that was pending in one step, however much it was, and Redis then looks again
-- at the readers that wait, which it does not do for a group whose id was set.
redis.call('xgroup', 'destroy', log, ARGV[1])
redis.call('xgroup', 'create', log, ARGV[1], after)
-- with clock
local now = now_ms()
local generation = math.max(tonumber(redis.call('hget', control, 'log-generation') or 0) + 1, now)
redis.call('hset', control, 'log-generation', string.format('%.0f', generation))
return { 'MOVED', after }
