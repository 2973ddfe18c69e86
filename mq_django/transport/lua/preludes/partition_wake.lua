-- Before a script that makes messages of a partition ready, or lets a line go on: wake consumers.
--
-- KEYS[last]  asleep   {queue.p.x}:asleep  STRING
-- ARGV[last]  channel  on which consumers wait
--
-- Returns what the script returns that follows.

do
  local asleep = table.remove(KEYS)
  local channel = table.remove(ARGV)
  if redis.call('del', asleep) == 1 then
    redis.call('publish', channel, 'ready')
  end
end
