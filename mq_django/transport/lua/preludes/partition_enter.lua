-- Before a script that publishes to a partition: check that the queue has this number of partitions, and wake consumers.
--
-- KEYS[last - 1]  control  {queue.p.x}:control  HASH    `partitions`: their number; "closed" while it is changed
-- KEYS[last]      asleep   {queue.p.x}:asleep   STRING
-- ARGV[last - 1]  partitions  by the settings
-- ARGV[last]      channel     on which consumers wait; '' if the messages are not ready: nobody is woken
--
-- Returns the error CLOSED with the number that is known, and nothing is written; else the script that follows runs.

do
  local asleep, control = table.remove(KEYS), table.remove(KEYS)
  local channel, partitions = table.remove(ARGV), table.remove(ARGV)
  local known = redis.call('hget', control, 'partitions')
  if known and known ~= partitions then
    return redis.error_reply('CLOSED ' .. known)
  end
  -- Deleted by the first message after a fetch that found nothing: one notification, however many messages follow.
  if channel ~= '' and redis.call('del', asleep) == 1 then
    redis.call('publish', channel, 'ready')
  end
end
