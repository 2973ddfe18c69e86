-- Ask a consumer or a supervisor to go quiet or to stop. It reads this with its next heartbeat.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- ARGV[1]  member       a consumer or a supervisor
-- ARGV[2]  request      'quiet' or 'stop'
-- ARGV[3]  wake         channel
--
-- Returns 'ASKED', 'ASKED_BEFORE' when it was asked for this or for 'stop' before, or 'GONE'. The supervisors are
-- notified unless it is gone.

-- with types
check_types({ [KEYS[1]] = 'hash' })

local member, request = ARGV[1], ARGV[2]
local found = redis.call('hexists', KEYS[1], 'consumer:' .. member)
found = found + redis.call('hexists', KEYS[1], 'supervisor:' .. member)
if found == 0 then
  return 'GONE'
end
-- Its state only moves forward: running, quiet, stopped.
local before = redis.call('hget', KEYS[1], 'ask:' .. member)
local is_new = not before or (before == 'quiet' and request == 'stop')
if is_new then
  redis.call('hset', KEYS[1], 'ask:' .. member, request)
end
redis.call('publish', ARGV[3], 'asked')
return is_new and 'ASKED' or 'ASKED_BEFORE'
