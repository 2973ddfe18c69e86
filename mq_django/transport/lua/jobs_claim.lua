-- Take or renew the lease of a background job. One worker runs it at a time.
--
-- KEYS[1]  jobs     {queue}:jobs   HASH   see parts/jobs
-- ARGV[1]  place
-- ARGV[2]  worker
-- ARGV[3]  lease    ms
--
-- Returns the fields and values of all jobs; {'HELD', ms until another worker's lease ends}; or {'NONE'} when no job is
-- running there.

-- with types
-- with clock
-- with numbers
local jobs, place = KEYS[1], ARGV[1] .. ':'
check_types({ [jobs] = 'hash' })
local state, worker, lease = unpack(redis.call('hmget', jobs, place .. 'state', place .. 'worker', place .. 'lease'))
if state ~= 'running' then
  return { 'NONE' }
end
local now = now_ms()
local left = number_of(lease) - now
if worker and worker ~= ARGV[2] and left > 0 then
  return { 'HELD', left }
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', jobs, '')
redis.call('hset', jobs, place .. 'worker', ARGV[2], place .. 'lease', string.format('%.0f', now + ARGV[3]))
return redis.call('hgetall', jobs)
