-- Create the consumer group of a queue's streams at their beginnings, where it does not exist.
--
-- KEYS[1]  control  {queue}:control  HASH    ordered: see lines_begin
-- KEYS[2]  front    {queue}:front    STREAM  not created when it does not exist, as is usual
-- KEYS[3]  ready    {queue}:ready    STREAM
-- ARGV[1]  group
--
-- Returns 1 if the queue is used with ORDERED, else 0.

-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
-- Another program may have created the stream.
redis.pcall('xgroup', 'create', KEYS[2], ARGV[1], '0')
local made = redis.pcall('xgroup', 'create', KEYS[3], ARGV[1], '0', 'mkstream')
if made.err and not string.find(made.err, 'BUSYGROUP') then
  return made
end
return redis.call('hget', KEYS[1], 'ordered') == '1' and 1 or 0
