-- Append to the results of tasks that they were cancelled. Results that do not exist are not created.
--
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- ARGV[1]  line
-- ARGV[2]  time to live, ms
--
-- Returns the number of results that exist; or an error of one that could not be written. The others are written all the
-- same.

local found, failed = 0, nil
for _, key in ipairs(KEYS) do
  if redis.call('exists', key) == 1 then
    local length = redis.pcall('append', key, ARGV[1])
    if type(length) == 'table' then
      failed = length
    else
      redis.call('pexpire', key, ARGV[2])
      found = found + 1
    end
  end
end
return failed or found
