-- Start a background job on messages of a place, unless one is running.
--
-- KEYS[1]  jobs     {queue}:jobs   HASH   see parts/jobs
-- ARGV[1]  channel  gets a notification that there is work
-- ARGV[2]  place
-- then the job's fields and values
--
-- Returns 'BEGUN', or 'RUNNING' when another job on these messages is running.

-- with types
-- with clock
local jobs, place = KEYS[1], ARGV[2] .. ':'
check_types({ [jobs] = 'hash' })
if redis.call('hget', jobs, place .. 'state') == 'running' then
  return 'RUNNING'
end
for _, field in ipairs({ 'worker', 'lease', 'after', 'looked', 'done', 'missing', 'refused', 'held' }) do
  redis.call('hdel', jobs, place .. field)
end
for at = 3, #ARGV, 2 do
  redis.call('hset', jobs, place .. ARGV[at], ARGV[at + 1])
end
local now = string.format('%.0f', now_ms())
redis.call('hset', jobs, place .. 'state', 'running', place .. 'since', now, place .. 'changed', now)
redis.call('persist', jobs)
redis.call('publish', ARGV[1], 'job')
return 'BEGUN'
