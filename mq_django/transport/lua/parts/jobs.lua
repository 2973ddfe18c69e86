-- with counted
-- A step of a queue's job about dead letters counts itself in the script that moves them, so that whoever goes on after
-- a death neither doubles nor forgets one. The first arguments of such a script are the worker, '' when it is no step;
-- the last entry that was looked at; how many were; and for how many ms the job is the worker's from now on.

-- Return whether a step may be made: the job runs, and is this worker's.
local function is_allowed(job, worker)
  local told = redis.call('hmget', job, 'state', 'worker')
  return worker == '' or (told[1] == 'running' and told[2] == worker)
end

-- Count a step of such a script, by its arguments and what it returns of each dead letter.
local function count_step(job, arguments, words, now)
  local worker, last, looked, ms = unpack(arguments, 1, 4)
  if worker == '' then
    return
  end
  for _, word in ipairs(words) do
    local field = word == 'MISSING' and 'missing' or word == 'UNDECODABLE' and 'refused' or 'done'
    counted(job, field, 1)
  end
  counted(job, 'looked', looked)
  redis.call('hset', job, 'after', last, 'lease', string.format('%.0f', now + ms))
  redis.call('hset', job, 'changed', string.format('%.0f', now))
end
