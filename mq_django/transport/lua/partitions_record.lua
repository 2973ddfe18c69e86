-- Record how many partitions a queue has, when it is first used.
--
-- KEYS[1]  control     {queue}:control  HASH    `partitions`: their number; "closed" while it is changed
-- KEYS[2]  ready       {queue}:ready    STREAM  this and the next: of the queue without partitions
-- KEYS[3]  urgent      {queue}:urgent   STREAM
-- KEYS[4]  waiting     {queue}:waiting  HASH
-- KEYS[5]  dead        {queue}:dead     STREAM
-- KEYS[6]  schedules   {queue}:runtime-schedules  HASH
-- ARGV[1]  partitions  by the settings
--
-- Returns what is recorded; '1' if nothing is, and the queue without partitions has messages, or schedules that were
-- created at run time.

-- with types
local control, ready, urgent, waiting, dead, schedules = unpack(KEYS)

local wrong = wrong_type({ [control] = 'hash', [waiting] = 'hash', [schedules] = 'hash' })
  or wrong_type({ [ready] = 'stream', [urgent] = 'stream', [dead] = 'stream' })
if wrong then
  return wrong
end

local known = redis.call('hget', control, 'partitions')
if known then
  return known
end
local messages = 0
for _, stream in ipairs({ ready, urgent, dead }) do
  messages = messages + redis.call('xlen', stream)
end
if ARGV[1] ~= '1' and messages + redis.call('hlen', waiting) + redis.call('hlen', schedules) > 0 then
  return '1'
end
if ARGV[1] ~= '1' then
  redis.call('hset', control, 'partitions', ARGV[1])
end
return ARGV[1]
