-- Make the consumer group of a queue's streams, from their beginnings, where there is none.
--
-- KEYS[1]  control  {queue}:control   HASH
-- KEYS[2]  urgent   {queue}:urgent    STREAM   mostly it is not there, and then it is not made
-- KEYS[3]  ready    {queue}:ready     STREAM   and further ones like it
-- ARGV[1]  group
--
-- Returns 'SUBSCRIBED'.

-- A write that is allowed when memory is out: after it the others are. A queue that nobody has consumed before can so be
-- emptied when Redis is full.
redis.call('hdel', KEYS[1], '')
-- It may have been made by a stranger.
redis.pcall('xgroup', 'create', KEYS[2], ARGV[1], '0')
for i = 3, #KEYS do
  local made = redis.pcall('xgroup', 'create', KEYS[i], ARGV[1], '0', 'mkstream')
  if made.err and not string.find(made.err, 'BUSYGROUP') then
    return made
  end
end
return 'SUBSCRIBED'
