-- Note what attempts came to, in the results of their tasks.
--
-- KEYS     a result each   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- then for each in ARGV: the line for the task, for when there is none (any more); the line for the attempt;
--                        the time to live in ms
--
-- Returns how many; or an error of those that could not be noted, which keep none of the others back.

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
