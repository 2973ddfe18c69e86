-- Before the script that promotes due messages of a partition: wake consumers, if a message is due.
--
-- KEYS[1]     due      {queue.p.x}:due     ZSET    of the script: score: due time, ms
-- KEYS[last]  asleep   {queue.p.x}:asleep  STRING
-- ARGV[last]  channel  on which consumers wait
--
-- Returns what the script returns that follows.

do
-- with clock
  local asleep, channel = table.remove(KEYS), table.remove(ARGV)
  local is_due = #redis.call('zrangebyscore', KEYS[1], '-inf', string.format('%.3f', now_us() / 1000), 'limit', 0, 1) > 0
  if is_due and redis.call('del', asleep) == 1 then
    redis.call('publish', channel, 'ready')
  end
end
