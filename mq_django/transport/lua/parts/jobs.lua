-- with numbers
-- The jobs of a queue are in one hash, at most one for each place of its messages: a field is a place, a colon and a
-- name. A step of a job updates its counts in the script that moves the messages, so that the counts are right when a
-- worker dies and another continues. `held` has the entries of messages that a move has made dead letters, and still has to
-- write to the other queue. The first arguments of such a script are the worker ('' when no job is involved),
-- the last entry checked, the number of entries checked, the worker's new lease in ms, and the place.

-- Return whether the job is running and this worker runs it, by the script's arguments.
local function is_allowed(jobs, arguments)
  local worker, place = arguments[1], arguments[5]
  local found = redis.call('hmget', jobs, place .. ':state', place .. ':worker')
  return worker == '' or (found[1] == 'running' and found[2] == worker)
end

-- Count a step, by the script's arguments and its reply for each dead letter.
local function count_step(jobs, arguments, words, now)
  local worker, last, looked, ms, place = unpack(arguments, 1, 5)
  if worker == '' then
    return
  end
  -- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be
  -- emptied.
  redis.call('hdel', jobs, '')
  for _, word in ipairs(words) do
    local field = word == 'MISSING' and 'missing' or word == 'UNDECODABLE' and 'refused' or 'done'
    -- A job on one place counts nothing for the messages of others.
    if word ~= 'ELSEWHERE' then
      increment(jobs, place .. ':' .. field, 1)
    end
  end
  increment(jobs, place .. ':looked', looked)
  redis.call('hset', jobs, place .. ':after', last, place .. ':lease', string.format('%.0f', now + ms))
  redis.call('hset', jobs, place .. ':changed', string.format('%.0f', now))
end
