-- Append the ids of messages that have ended, for the outboxes that keep their rows until then: see parts/ended.
--
-- KEYS[1]  ended   {queue}:ended   STREAM   fields of an entry: the ids of messages, without values
-- ARGV     ids, at most 500
--
-- Returns 'ADDED'; or 'SKIPPED' if there is nothing to add, or the key has another type: no error, because the messages
-- end all the same.

-- with ended
-- with types
if #ARGV == 0 or wrong_type({ [KEYS[1]] = 'stream' }) then
  return 'SKIPPED'
end
-- First, because Redis allows it when memory is out. The write after it is then allowed, too.
redis.call('xdel', KEYS[1], '0-1')
add_ended(KEYS[1], ARGV)
return 'ADDED'
