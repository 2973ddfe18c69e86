-- Append the outcomes of attempts to the results of their tasks.
--
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- ARGV for each: the line for the task, written if the result does not exist; the line for the attempt; the time to
-- live in ms
--
-- Returns the number of results; or an error of one that could not be written. The others are written all the same.

local try, argv, failed = redis.pcall, ARGV, nil
for i, key in ipairs(KEYS) do
  local attempt, ttl = argv[3 * i - 1], argv[3 * i]
  local length = try('append', key, attempt)
  if length == #attempt then
    try('set', key, argv[3 * i - 2] .. attempt, 'px', ttl)
  elseif type(length) == 'table' then
    failed = length
  else
    try('pexpire', key, ttl)
  end
end
return failed or #KEYS
