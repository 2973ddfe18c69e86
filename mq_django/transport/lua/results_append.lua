-- Append the outcomes of attempts to the results of their tasks, and tell the processes that wait for one that has ended.
-- Before the command that settles them: those that the consumer no longer holds are left out.
--
-- KEYS[1]  stream    {queue}:ready or :urgent   STREAM
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- KEYS     waiters   {queue}:waiters       HASH     after the results; may be missing
-- ARGV[1]  group
-- ARGV[2]  consumer
-- then for each result: the id of the delivery's entry; the line for the task, written if the result does not exist; the
-- line for the attempt; the time to live in ms
-- ARGV     channel   with `waiters`: the channels of processes, without the process at its end
--
-- Returns the number of results that were written; or an error of one that could not be. The others are written all the
-- same.

-- with held
-- with waiters
local try, argv, failed = redis.pcall, ARGV, nil
local count, written = math.floor((#argv - 2) / 4), 0
local waiters = KEYS[count + 2]
local is_awaited = waiters and redis.call('exists', waiters) == 1
local holds = holding(KEYS[1], argv[1], argv[2], argv[3], count)
for i = 1, count do
  local key, entry, task, attempt, ttl = KEYS[i + 1], unpack(argv, 4 * i - 1, 4 * i + 2)
  if holds(entry) then
    local length = try('append', key, attempt)
    if length == #attempt then
      try('set', key, task .. attempt, 'px', ttl)
    elseif type(length) == 'table' then
      failed = length
    else
      try('pexpire', key, ttl)
    end
    written = written + 1
    if is_awaited and ends_task(attempt) then
      tell_waiters(waiters, argv[#argv], key)
    end
  end
end
return failed or written
