-- Ask a consumer for the stacks of what it runs. It answers in a key of its own.
--
-- KEYS[1]  stacks      {queue}:stacks      HASH, TTL   consumer -> when it was asked last, ms since 1970
-- KEYS[2]  consumers   {queue}:consumers   HASH        `stacks:asked` counts the requests
-- ARGV[1]  consumer
-- ARGV[2]  time to live, ms
-- ARGV[3]  wake        channel
--
-- Returns the time of the request, which is later than that of the one before; or 'GONE'. The supervisors are notified
-- unless it is gone.

-- with types
-- with clock
-- with numbers
local stacks, consumers = KEYS[1], KEYS[2]
check_types({ [stacks] = 'hash', [consumers] = 'hash' })

local consumer = ARGV[1]
if redis.call('hexists', consumers, 'consumer:' .. consumer) == 0 then
  return 'GONE'
end
local now, before = now_ms(), number_of(redis.call('hget', stacks, consumer))
-- An answer to the request before is too old for this one. A time that is far ahead is not one that this script wrote.
if before >= now and before < now + 86400000 then
  now = before + 1
end
redis.call('hset', stacks, consumer, string.format('%.0f', now))
redis.call('pexpire', stacks, ARGV[2])
increment(consumers, 'stacks:asked', 1)
redis.call('publish', ARGV[3], 'stacks')
return string.format('%.0f', now)
