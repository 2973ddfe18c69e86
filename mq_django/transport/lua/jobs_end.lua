-- End a background job. Its hash is kept for a week. Messages that were counted at its start and that a finished job has
-- not met were gone before: they are checked, and missing.
--
-- KEYS[1]  job     {queue}:dead-job or :message-job   HASH
-- ARGV[1]  state   'finished' or 'cancelled'
-- ARGV[2]  worker  must run the job; '' when the caller is not a worker
-- ARGV[3]  fields and values to note, if any
--
-- Returns 'ENDED', or 'OVER' when the job is not running, or another worker runs it.

-- with types
-- with clock
-- with numbers
-- with increment
local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
  return wrong
end
local state, worker = unpack(redis.call('hmget', KEYS[1], 'state', 'worker'))
if state ~= 'running' or (ARGV[2] ~= '' and worker ~= ARGV[2]) then
  return 'OVER'
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
if ARGV[1] == 'finished' then
  local total, looked = unpack(redis.call('hmget', KEYS[1], 'total', 'looked'))
  local gone = number_of(total) - number_of(looked)
  if gone > 0 then
    increment(KEYS[1], 'missing', gone)
    increment(KEYS[1], 'looked', gone)
  end
end
redis.call('hset', KEYS[1], 'state', ARGV[1], 'changed', string.format('%.0f', now_ms()), unpack(ARGV, 3))
redis.call('pexpire', KEYS[1], 604800000)
return 'ENDED'
