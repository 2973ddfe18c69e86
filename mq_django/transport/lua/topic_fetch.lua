-- Take messages for a consumer of a group without waiting: what the group keeps itself, then the log.
--
-- KEYS[1]  ready    {topic}:g:<group>:ready     STREAM
-- KEYS[2]  urgent   {topic}:g:<group>:urgent    STREAM
-- KEYS[3]  log      {topic}:log                 STREAM
-- KEYS[4]  control  {topic}:g:<group>:control   HASH
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  count    messages
--
-- Returns {generation, entries of ready, of urgent, of log}, each entry {id, {field, value, ...}}; or 'PAUSED'.

local homes, group, consumer = { KEYS[1], KEYS[2], KEYS[3] }, ARGV[1], ARGV[2]
local state = redis.call('hmget', KEYS[4], 'paused', 'log-generation')
if state[1] == '1' then
  return 'PAUSED'
end

-- with take
-- Without its log a group has what it keeps itself.
read(3, read(1, read(2, tonumber(ARGV[3]))))
if failed and #taken[1] + #taken[2] + #taken[3] == 0 then
  return failed
end
return { state[2] or '', unpack(taken) }
