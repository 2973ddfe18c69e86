-- Prepare a queue for a consumer that takes messages with `lines_fetch`: the group by which it is woken, and whether the
-- queue has order. That is changed only while no message is handled and no supervisor that goes by the other setting is
-- there: they would break the order.
--
-- KEYS[1]  control    {queue}:control         HASH    ordered, hold: 1 or missing
-- KEYS[2]  consumers  {queue}:consumers       HASH
-- KEYS[3]  ready      {queue}:ready           STREAM
-- KEYS[4]  front      {queue}:front           STREAM
-- KEYS[5]  freed      {queue}:permit-wakeups  STREAM  an entry wakes a consumer
-- KEYS[6]  permits    {queue}:permits         ZSET    see parts/tokens
-- ARGV[1]  group
-- ARGV[2]  order      '1' if the messages of a key run in their order, else '0'
-- ARGV[3]  hold       '1' if a key waits for its dead letter, else '0'
--
-- Returns 'BEGUN', or 'WAIT' while the queue is used with the other setting of order.

-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', KEYS[1], '')
for _, stream in ipairs({ KEYS[3], KEYS[5] }) do
  local made = redis.pcall('xgroup', 'create', stream, 'wake', '0', 'mkstream')
  if made.err and not string.find(made.err, 'BUSYGROUP') then
    return made
  end
end

local control, order = KEYS[1], ARGV[2]
if (redis.call('hget', control, 'ordered') or '0') ~= order then
  local flat = redis.call('hgetall', KEYS[2])
  for at = 1, #flat, 2 do
    local has_order = string.find(flat[at + 1], '"ordered"%s*:%s*true') and '1' or '0'
    if string.sub(flat[at], 1, 11) == 'supervisor:' and has_order ~= order then
      return 'WAIT'
    end
  end
  for _, stream in ipairs({ KEYS[3], KEYS[4] }) do
    local pending = redis.pcall('xpending', stream, ARGV[1])
    if not pending.err and pending[1] > 0 then
      return 'WAIT'
    end
  end
end
if order == '0' and redis.call('hget', control, 'ordered') then
  -- Nothing runs. A message that waits without order holds no key.
  redis.call('del', KEYS[6])
end
for field, value in pairs({ ordered = order, hold = ARGV[3] }) do
  if value == '1' then
    redis.call('hset', control, field, '1')
  else
    redis.call('hdel', control, field)
  end
end
return 'BEGUN'
