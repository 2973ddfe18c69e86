-- Take or renew the lease of a background job. One worker runs it at a time.
--
-- KEYS[1]  job      {queue}:dead-job or :message-job   HASH
-- ARGV[1]  worker
-- ARGV[2]  lease    ms
--
-- Returns the job's fields and values; {'HELD', ms until another worker's lease ends}; or {'NONE'} when no job is
-- running.

-- with types
-- with clock
-- with numbers
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end
local state, worker, lease = unpack(redis.call('hmget', KEYS[1], 'state', 'worker', 'lease'))
if state ~= 'running' then
  return { 'NONE' }
end
local now = now_ms()
local left = number_of(lease) - now
if worker and worker ~= ARGV[1] and left > 0 then
  return { 'HELD', left }
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
redis.call('hset', KEYS[1], 'worker', ARGV[1], 'lease', string.format('%.0f', now + ARGV[2]))
return redis.call('hgetall', KEYS[1])
