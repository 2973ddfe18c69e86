-- Create the consumer group of a queue's streams at their beginnings, where it does not exist.
--
-- KEYS[1]  control  {queue}:control   HASH
-- KEYS[2]  urgent   {queue}:urgent    STREAM   not created when it does not exist, as is usual
-- KEYS[3]  ready    {queue}:ready     STREAM   and further streams
-- ARGV[1]  group
--
-- Returns 'SUBSCRIBED'.

-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
-- Another program may have created the stream.
redis.pcall('xgroup', 'create', KEYS[2], ARGV[1], '0')
for i = 3, #KEYS do
  local made = redis.pcall('xgroup', 'create', KEYS[i], ARGV[1], '0', 'mkstream')
  if made.err and not string.find(made.err, 'BUSYGROUP') then
    return made
  end
end
return 'SUBSCRIBED'
