-- End a background job. The hash is kept for a week after the last one. Messages that were counted at its start and that
-- a finished job has not met were gone before: they are checked, and missing.
--
-- KEYS[1]  jobs    {queue}:jobs   HASH   see parts/jobs
-- ARGV[1]  place
-- ARGV[2]  state   'finished' or 'cancelled'
-- ARGV[3]  worker  must run the job; '' when the caller is not a worker
--
-- Returns 'ENDED', or 'OVER' when the job is not running, or another worker runs it.

-- with types
-- with clock
-- with numbers
local jobs, place = KEYS[1], ARGV[1] .. ':'
check_types({ [jobs] = 'hash' })
local state, worker = unpack(redis.call('hmget', jobs, place .. 'state', place .. 'worker'))
if state ~= 'running' or (ARGV[3] ~= '' and worker ~= ARGV[3]) then
  return 'OVER'
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', jobs, '')
if ARGV[2] == 'finished' then
  local total, looked = unpack(redis.call('hmget', jobs, place .. 'total', place .. 'looked'))
  local gone = number_of(total) - number_of(looked)
  if gone > 0 then
    increment(jobs, place .. 'missing', gone)
    increment(jobs, place .. 'looked', gone)
  end
end
redis.call('hset', jobs, place .. 'state', ARGV[2], place .. 'changed', string.format('%.0f', now_ms()))
for _, other in ipairs({ 'dead', 'ready', 'delayed', 'unhandled', 'parked' }) do
  if redis.call('hget', jobs, other .. ':state') == 'running' then
    return 'ENDED'
  end
end
redis.call('pexpire', jobs, 604800000)
return 'ENDED'
