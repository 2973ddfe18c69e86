-- Ask a consumer or a supervisor for something, to be read with the next heartbeat.
--
-- KEYS[1]  consumers    {queue}:consumers   HASH
-- ARGV[1]  who          a consumer or a supervisor
-- ARGV[2]  what         'quiet' or 'stop'
-- ARGV[3]  wake         channel
--
-- Returns 'ASKED', 'ASKED_BEFORE' when it was asked for this or for more, or 'GONE'; the supervisors are told either way.

-- with types
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end

local who, what = ARGV[1], ARGV[2]
local is_there = redis.call('hexists', KEYS[1], 'consumer:' .. who) + redis.call('hexists', KEYS[1], 'supervisor:' .. who)
if is_there == 0 then
  return 'GONE'
end
-- Its state only moves forward: running, quiet, stopped.
local before = redis.call('hget', KEYS[1], 'ask:' .. who)
local is_news = not before or (before == 'quiet' and what == 'stop')
if is_news then
  redis.call('hset', KEYS[1], 'ask:' .. who, what)
end
redis.call('publish', ARGV[3], 'asked')
return is_news and 'ASKED' or 'ASKED_BEFORE'
