-- Take messages for a consumer of a group without waiting: the group's own streams, then the log.
--
-- KEYS[1]  ready    {topic}:g:<group>:ready    STREAM
-- KEYS[2]  front    {topic}:g:<group>:front    STREAM
-- KEYS[3]  log      {topic}:log                STREAM
-- KEYS[4]  control  {topic}:g:<group>:control  HASH
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  count    messages
--
-- Returns {generation, entries of ready, of front, of log}, each entry {id, {field, value, ...}}; or 'PAUSED'.

-- with take
local ready, front, log, control = unpack(KEYS)
local state = redis.call('hmget', control, 'paused', 'log-generation')
if state[1] == '1' then
  return 'PAUSED'
end

-- If the log does not exist, the group's own streams can still be read.
local taking = taking_from({ ready, front, log }, ARGV[1], ARGV[2])
read(taking, 3, read(taking, 1, read(taking, 2, tonumber(ARGV[3]))))
if taking.failed and count_taken(taking) + #taking.taken[3] == 0 then
  return taking.failed
end
return { state[2] or '', unpack(taking.taken) }
