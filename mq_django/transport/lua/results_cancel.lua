-- Append to the results of tasks that they were cancelled, and tell the processes that wait for them. Results that do not
-- exist are not created.
--
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- KEYS     waiters   {queue}:waiters       HASH     after the results
-- ARGV[1]  line
-- ARGV[2]  time to live, ms
-- ARGV[3]  channel   the channels of processes, without the process at its end
--
-- Returns the number of results that exist; or an error of one that could not be written. The others are written all the
-- same.

-- with waiters
local found, failed, channel, waiters = 0, nil, ARGV[3], KEYS[#KEYS]
local is_awaited = redis.call('exists', waiters) == 1
for i = 1, #KEYS - 1 do
  local key = KEYS[i]
  if redis.call('exists', key) == 1 then
    local length = redis.pcall('append', key, ARGV[1])
    if type(length) == 'table' then
      failed = length
    else
      redis.call('pexpire', key, ARGV[2])
      found = found + 1
      if is_awaited then
        tell_waiters(waiters, channel, key)
      end
    end
  end
end
return failed or found
