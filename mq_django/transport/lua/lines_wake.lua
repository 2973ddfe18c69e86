-- Wake a consumer that waits, if there is something for it: a permit of the queue, or a line that may go on. For those who
-- settle deliveries and take no others.
--
-- KEYS[1]  limits  {queue}:limits          HASH    'w': until when a consumer may be waiting, ms
-- KEYS[2]  checks  {queue}:next-checks     ZSET    see parts/line_keys
-- KEYS[3]  freed   {queue}:permit-wakeups  STREAM  an entry wakes a consumer
-- KEYS[4]  asleep  {queue}:asleep          STRING  of a partition only
-- ARGV[1]  most     concurrent deliveries of the queue; 0: no limit
-- ARGV[2]  channel  of a partition only: on which consumers wait
--
-- Returns 1 if it woke one, else 0.

-- with clock
-- with numbers
local ms = now_ms()
local has_work = ARGV[1] ~= '0' or redis.call('zcount', KEYS[2], '-inf', ms + 1) > 0
if has_work and KEYS[4] then
  return redis.call('del', KEYS[4]) == 1 and redis.call('publish', ARGV[2], 'ready') and 1 or 0
end
if has_work and number_of(redis.call('hget', KEYS[1], 'w')) > ms then
  redis.pcall('xadd', KEYS[3], 'maxlen', '~', 16, '*', 'n', 1)
  return 1
end
return 0
