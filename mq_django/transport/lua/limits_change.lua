-- Change limits of a queue until they are changed back, and look anew at lines that wait for a limit of their key.
--
-- KEYS[1]  control  {queue}:control      HASH   limits: see parts/limit_changes
-- KEYS[2]  checks   {queue}:next-checks  ZSET   see parts/line_keys
-- ARGV[1]  after    ms from now after which up to 1000 lines are looked at that would be later; '': none
-- then for each limit: its name, and its change as a JSON object, or '' to change it back
--
-- Returns {1 if a limit was changed, else 0, lines that are still looked at later}.

-- with types
-- with clock
-- with limit_changes
local control, checks = KEYS[1], KEYS[2]
check_types({ [control] = 'hash', [checks] = 'zset' })

local changes, is_changed = limit_changes(redis.call('hget', control, 'limits')), 0
for at = 2, #ARGV, 2 do
  local name, change = ARGV[at], ARGV[at + 1]
  if change ~= '' or changes[name] ~= nil then
    changes[name] = change ~= '' and cjson.decode(change) or nil
    is_changed = 1
  end
end
if next(changes) == nil then
  redis.call('hdel', control, 'limits')
elseif is_changed == 1 then
  redis.call('hset', control, 'limits', cjson.encode(changes))
end

local later = 0
if ARGV[1] ~= '' then
  local by = string.format('%.0f', now_ms() + ARGV[1])
  for _, line in ipairs(redis.call('zrangebyscore', checks, '(' .. by, '+inf', 'limit', 0, 1000)) do
    redis.call('zadd', checks, by, line)
  end
  later = redis.call('zcount', checks, '(' .. by, '+inf')
end
return { is_changed, later }
