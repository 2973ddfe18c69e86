-- with increment
-- A step of a background job updates the job's counts in the script that moves the messages, so that the counts are
-- right when a worker dies and another continues. The first arguments of such a script are the worker ('' when no job
-- is involved), the last entry checked, the number of entries checked, and the worker's new lease in ms.

-- Return whether the job is running and this worker runs it.
local function is_allowed(job, worker)
  local found = redis.call('hmget', job, 'state', 'worker')
  return worker == '' or (found[1] == 'running' and found[2] == worker)
end

-- Count a step, by the script's arguments and its reply for each dead letter.
local function count_step(job, arguments, words, now)
  local worker, last, looked, ms = unpack(arguments, 1, 4)
  if worker == '' then
    return
  end
  -- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be
  -- emptied.
  redis.call('hdel', job, '')
  for _, word in ipairs(words) do
    local field = word == 'MISSING' and 'missing' or word == 'UNDECODABLE' and 'refused' or 'done'
    -- A job on one place counts nothing for the messages of others.
    if word ~= 'ELSEWHERE' then
      increment(job, field, 1)
    end
  end
  increment(job, 'looked', looked)
  redis.call('hset', job, 'after', last, 'lease', string.format('%.0f', now + ms))
  redis.call('hset', job, 'changed', string.format('%.0f', now))
end
