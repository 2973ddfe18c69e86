-- Take messages for a consumer without waiting: what goes first, then what is ready.
--
-- KEYS[1]  ready      {queue}:ready     STREAM
-- KEYS[2]  urgent     {queue}:urgent    STREAM
-- KEYS[3]  control    {queue}:control   HASH
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  count      messages
--
-- Returns {entries of ready, entries of urgent}, each entry {id, {field, value, ...}}; or 'PAUSED'.

if redis.call('hget', KEYS[3], 'paused') == '1' then
  return 'PAUSED'
end

local left = tonumber(ARGV[3])
local taken = { {}, {} }
for _, home in ipairs({ 2, 1 }) do
  if left > 0 and (home == 1 or redis.call('exists', KEYS[2]) == 1) then
    local reply =
      redis.call('xreadgroup', 'group', ARGV[1], ARGV[2], 'count', left, 'streams', KEYS[home], '>')
    if reply then
      taken[home] = reply[1][2]
      left = left - #taken[home]
    end
  end
end
return taken
