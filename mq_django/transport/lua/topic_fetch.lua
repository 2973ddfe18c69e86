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

local state = redis.call('hmget', KEYS[4], 'paused', 'log-generation')
if state[1] == '1' then
  return 'PAUSED'
end

local left = tonumber(ARGV[3])
local taken = { state[2] or '', {}, {}, {} }
for _, home in ipairs({ 2, 1, 3 }) do
  if left > 0 and (home ~= 2 or redis.call('exists', KEYS[2]) == 1) then
    local reply =
      redis.call('xreadgroup', 'group', ARGV[1], ARGV[2], 'count', left, 'streams', KEYS[home], '>')
    if reply then
      taken[home + 1] = reply[1][2]
      left = left - #taken[home + 1]
    end
  end
end
return taken
