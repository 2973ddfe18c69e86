-- Record how many partitions a queue or topic has, when it is first used.
--
-- KEYS[1]    control     {name}:control  HASH  `partitions`: their number; "closed" while it is changed
-- KEYS[2..]  filled      {name}:...      STREAM or HASH  what has messages, or schedules that were created at run time,
--                                        if there are no partitions
-- ARGV[1]    partitions  by the settings
-- ARGV[2]    '1' to record nothing; optional
--
-- Returns what is recorded; if nothing is, '1' if one of these keys is not empty, else ARGV[1].

-- with types
local control = KEYS[1]
check_types({ [control] = 'hash' })

local known = redis.call('hget', control, 'partitions')
if known then
  return known
end
if ARGV[1] == '1' then
  return '1'
end
local size = { stream = 'xlen', hash = 'hlen' }
for i = 2, #KEYS do
  local kind = redis.call('type', KEYS[i]).ok
  if kind ~= 'none' and (not size[kind] or redis.call(size[kind], KEYS[i]) > 0) then
    return '1'
  end
end
if ARGV[2] ~= '1' then
  redis.call('hset', control, 'partitions', ARGV[1])
end
return ARGV[1]
