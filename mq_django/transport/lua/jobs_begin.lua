-- Start a background job on messages, unless one is running.
--
-- KEYS[1]  job      {queue}:dead-job or :message-job   HASH
-- ARGV[1]  channel  gets a notification that there is work
-- then the job's fields and values
--
-- Returns 'BEGUN', or 'RUNNING' when another job is running.

-- with types
-- with clock
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end
if redis.call('hget', KEYS[1], 'state') == 'running' then
  return 'RUNNING'
end
redis.call('del', KEYS[1])
redis.call('hset', KEYS[1], 'state', 'running', unpack(ARGV, 2))
local now = string.format('%.0f', now_ms())
redis.call('hset', KEYS[1], 'since', now, 'changed', now)
redis.call('publish', ARGV[1], 'job')
return 'BEGUN'
