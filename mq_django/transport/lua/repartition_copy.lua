-- Copy the result of a task, or what a message's handler reports, unless it is there.
--
-- KEYS[1]  copy   {queue.p.x}:result:<id> or :progress:<id>   STRING or HASH
-- ARGV[1]  ms     time to live
-- then its text, or fields and values
--
-- Returns 1 if it was written, else 0.

if redis.call('exists', KEYS[1]) == 1 then
  return 0
end
if #ARGV == 1 then
  -- It has ended meanwhile.
  return 0
elseif #ARGV == 2 then
  redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[1])
else
  redis.call('hset', KEYS[1], unpack(ARGV, 2))
  redis.call('pexpire', KEYS[1], ARGV[1])
end
return 1
