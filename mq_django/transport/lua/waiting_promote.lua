-- Make due messages ready, by the server's clock: never early.
--
-- KEYS[1]   due        {queue}:due        ZSET    score: due time, ms
-- KEYS[2]   waiting    {queue}:waiting    HASH    member -> body
-- KEYS[3]   unique     {queue}:unique     HASH    unique member -> id, and id -> member
-- KEYS[4]   ready      {queue}:ready      STREAM
-- KEYS[5]   priority   {queue}:priority   ZSET    score: see parts/ranks
-- KEYS[6]   unhandled  {queue}:unhandled  ZSET
-- KEYS[7]   control    {queue}:control    HASH
-- KEYS[8]   parked     {queue}:parked     ZSET    score: the key's hash
-- KEYS[9]   permits    {queue}:permits    ZSET    see parts/tokens; optional, with the next
-- KEYS[10]  front      {queue}:front      STREAM
-- KEYS[11]  holds      {queue}:holds      HASH    see parts/holds; optional
-- ARGV[1]  limit      messages, at most 500; 0: none, it only reads
-- ARGV[2]  group
-- ARGV[3]  free       1 if the queue has no lines: parked messages become ready, too, unless it is still used with ORDERED
-- ARGV[4]  ageing     optional: ms, see parts/ranks
--
-- Returns {moved, microseconds until the next is due or -1, 1 if the queue is paused, unhandled messages, 1 if the queue has
-- holds, or messages that were held: then holds_release is to be called}.

-- with types
-- with clock
-- with ready
-- with move_to_ready
-- with line_fields
-- with line_heads
local due, waiting, unique, ready, priority, unhandled, control, parked, permits, front, holds = unpack(KEYS)

check_types({ [waiting] = 'hash', [unique] = 'hash', [ready] = 'stream', [control] = 'hash' })
check_types({ [priority] = 'zset', [unhandled] = 'zset', [parked] = 'zset' })
if permits then
  check_types({ [permits] = 'zset', [front] = 'stream' })
end

local micros = now_us()
local now = string.format('%.3f', micros / 1000)
local from, members = due, redis.call('zrangebyscore', due, '-inf', now, 'limit', 0, ARGV[1])
local frees = ARGV[3] == '1' and redis.call('hget', control, 'ordered') ~= '1'
if #members == 0 and frees then
  from, members = parked, redis.call('zrangebyscore', parked, 0, '+inf', 'limit', 0, ARGV[1])
end
local moved, failed = 0, nil
if #members > 0 then
  -- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be
  -- emptied.
  redis.call('hdel', control, '')
  local make_ready = make_ready_with(ready, priority, waiting, control, ARGV[2], ARGV[4])
  if from == parked then
    make_ready = function(_, body, member)
      return add_fields(ready, fields_in(body, redis.call('hget', unique, member) or member))
    end
  elseif permits then
    make_ready = with_heads(make_ready, permits, ready, front, ARGV[2])
  end
  moved, failed = make_all_ready(from, members, waiting, unique, make_ready, from == due)
end
if failed and moved == 0 then
  return failed
end

local head = redis.call('zrange', due, 0, 0, 'withscores')[2]
if frees and redis.call('zcount', parked, 0, '+inf') > 0 then
  head = now
end
local paused = redis.call('hget', control, 'paused') == '1' and 1 or 0
local until_head = head and math.min(9e15, math.max(0, math.ceil(head * 1000 - micros))) or -1
local has_holds = holds and (redis.call('exists', holds) == 1 or redis.call('zcount', parked, '-inf', '(0') > 0)
return { moved, until_head, paused, redis.call('zcard', unhandled), has_holds and 1 or 0 }
