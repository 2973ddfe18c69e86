-- Create the consumer group of a queue's streams at their beginnings, where it does not exist.
--
-- KEYS[1]  control  {queue}:control   HASH     grouped: see stream_check; damage; ordered: see lines_begin
-- KEYS[2]  urgent   {queue}:urgent    STREAM   not created when it does not exist, as is usual
-- KEYS[3]  ready    {queue}:ready     STREAM
-- ARGV[1]  group
--
-- Returns {'SUBSCRIBED', or 'RECREATED' when another program removed the group of `ready`, or the stream; 1 if the queue
-- is used with ORDERED, else 0}.

-- with clock
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
-- Another program may have created the stream.
redis.pcall('xgroup', 'create', KEYS[2], ARGV[1], '0')
local word = 'SUBSCRIBED'
local made = redis.pcall('xgroup', 'create', KEYS[3], ARGV[1], '0', 'mkstream')
if made.err and not string.find(made.err, 'BUSYGROUP') then
  return made
end
if not made.err and redis.call('hexists', KEYS[1], 'grouped') == 1 then
  word = 'RECREATED'
  redis.call('hset', KEYS[1], 'damage', string.format('%.0f DESTROYED 0', now_ms()))
end
return { word, redis.call('hget', KEYS[1], 'ordered') == '1' and 1 or 0 }
