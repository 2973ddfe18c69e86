-- Note what attempts came to, in the results of their tasks.
--
-- KEYS     a result each   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- then for each in ARGV: the line for the task, for when there is none (any more); the line for the attempt;
--                        the time to live in ms
--
-- Returns how many.

for _, key in ipairs(KEYS) do
  local found = redis.call('type', key).ok
  if found ~= 'none' and found ~= 'string' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. found)
  end
end
for i, key in ipairs(KEYS) do
  local task, attempt, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  if redis.call('append', key, attempt) == #attempt then
    redis.call('set', key, task .. attempt)
  end
  redis.call('pexpire', key, ttl)
end
return #KEYS
