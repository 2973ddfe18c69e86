-- Release the permits of settled deliveries, and make the first parked message of each of their keys ready.
--
-- KEYS and ARGV[1..8]: see parts/limits
-- then for each delivery: stream, entry, key
--
-- Returns the number of parked messages that were made ready.

-- with limits
-- with permits
-- with release_parked
-- with undelivered
redis.call('hdel', limits, '')
local seen, made_ready = {}, 0
for at = 9, #ARGV, 3 do
  local permit, key = ARGV[at] .. '-' .. ARGV[at + 1], ARGV[at + 2]
  -- Another consumer may hold the delivery now, and with it the permit.
  if not is_valid(permit) then
    redis.call('zrem', permits, permit)
    seen[key] = true
  end
end
for key in pairs(key_most > 0 and seen or {}) do
  local entry = redis.call('zscore', next_checks, key)
  while entry do
    -- A blocked reader waits for `ready` only. It is blocked only when `ready` has no undelivered entry.
    entry = release_parked(key, #undelivered(ready, group, 1) > 0 and 1 or 0)
    made_ready = made_ready + (entry and 1 or 0)
  end
end
if most > 0 and redis.call('hget', limits, 'w') then
  redis.pcall('xadd', permit_wakeups, 'maxlen', '~', 16, '*', 'n', 1)
end
return made_ready
