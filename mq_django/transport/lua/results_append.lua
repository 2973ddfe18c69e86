-- Append the outcomes of attempts to the results of their tasks, and tell the processes that wait for one that has ended.
--
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- KEYS     waiters   {queue}:waiters       HASH     after the results; may be missing
-- ARGV for each result: the line for the task, written if the result does not exist; the line for the attempt; the time
-- to live in ms
-- ARGV     channel   with `waiters`: the channels of processes, without the process at its end
--
-- Returns the number of results; or an error of one that could not be written. The others are written all the same.

-- with waiters
local try, argv, failed = redis.pcall, ARGV, nil
local count = math.floor(#argv / 3)
local waiters = KEYS[count + 1]
local is_awaited = waiters and redis.call('exists', waiters) == 1
for i = 1, count do
  local key, attempt, ttl = KEYS[i], argv[3 * i - 1], argv[3 * i]
  local length = try('append', key, attempt)
  if length == #attempt then
    try('set', key, argv[3 * i - 2] .. attempt, 'px', ttl)
  elseif type(length) == 'table' then
    failed = length
  else
    try('pexpire', key, ttl)
  end
  if is_awaited and ends_task(attempt) then
    tell_waiters(waiters, argv[#argv], key)
  end
end
return failed or count
