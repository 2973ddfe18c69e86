-- Give back the permits of deliveries that were settled: the first parked message of the same key is ready then.
--
-- KEYS and ARGV[1..8]: see parts/limits
-- then for each delivery: home, entry, key
--
-- Returns how many parked messages were made ready.

-- with limits
-- with permits
-- with parked
-- with undelivered
redis.call('hdel', limits, '')
local seen, made_ready = {}, 0
for at = 9, #ARGV, 3 do
  local permit, key = ARGV[at] .. '-' .. ARGV[at + 1], ARGV[at + 2]
  -- Somebody else may hold it by now, and with it the permit.
  if not is_there(permit) then
    redis.call('zrem', permits, permit)
    seen[key] = true
  end
end
for key in pairs(key_most > 0 and seen or {}) do
  local entry = redis.call('zscore', turns, key)
  while entry do
    -- A blocked reader waits for `ready` only, and then nothing undelivered stands there.
    entry = release(key, #undelivered(ready, group, 1) > 0 and 1 or 0)
    made_ready = made_ready + (entry and 1 or 0)
  end
end
if most > 0 and redis.call('hget', limits, 'w') then
  redis.pcall('xadd', freed, 'maxlen', '~', 16, '*', 'n', 1)
end
return made_ready
