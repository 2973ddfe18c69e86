-- Give deliveries back uncharged, before everything that is ready.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- KEYS[2]  ready      {queue}:ready              STREAM
-- KEYS[3]  urgent     {queue}:urgent             STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id; the message's id and time, which it brings along to its new entry; and
-- 'lost' when its consumer vanished with its machine: what that happens to twice runs alone from then on; or 'suspect'
-- when it was running beside others as their process died: it runs alone from now on
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

-- with hand_back
-- with stream_receipts
-- with types
-- with undelivered
local stream, ready, urgent = unpack(KEYS)
local group, consumer = ARGV[1], ARGV[2]
local wrong = wrong_type({ [ready] = 'stream', [urgent] = 'stream' })
if wrong then
  return wrong
end

-- A blocked reader waits for `ready` only. It is blocked when nothing undelivered stands there, and then that is the
-- place for what goes first; else `urgent` is, which every fetch reads before `ready`.
local target = #undelivered(ready, group, 1) > 0 and urgent or ready
local stale = hand_back(stream_receipts(stream, group, consumer), target, ARGV)
if target == urgent then
  -- Mostly it is there. Not before the first write: when memory is out, that would keep everything from going back.
  redis.pcall('xgroup', 'create', urgent, group, '0')
end
return stale
