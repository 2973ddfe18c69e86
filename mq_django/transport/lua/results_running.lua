-- Append to the results of tasks that they are running. When a result expires does not change, and no process that waits
-- is told. Results that do not exist are not created.
--
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- ARGV     lines     one for each result
--
-- Returns the number of results that exist; or an error of one that could not be written. The others are written all the
-- same.

local found, failed = 0, nil
for i, key in ipairs(KEYS) do
  if redis.call('type', key).ok == 'string' then
    local length = redis.pcall('append', key, ARGV[i])
    if type(length) == 'table' then
      failed = length
    else
      found = found + 1
    end
  end
end
return failed or found
