-- Give deliveries back uncharged, before everything that is ready.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- KEYS[2]  ready      {queue}:ready              STREAM
-- KEYS[3]  urgent     {queue}:urgent             STREAM
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id; the message's id and time, which it brings along to its new entry; and
-- 'lost' when its consumer vanished with its machine: what that happens to twice runs alone from then on; or 'suspect'
-- when it was running beside others as their process died: it runs alone from now on
--
-- Returns the ids of those that the consumer no longer holds; these are left as they are.

local home, ready, urgent = unpack(KEYS)
-- with types
local wrong = wrong_type({ [ready] = 'stream', [urgent] = 'stream' })
if wrong then
  return wrong
end

-- with undelivered
-- with again
-- A blocked reader waits for `ready` only. It is blocked when nothing undelivered stands there, and then that is the
-- place for what goes first; else `urgent` is, which every fetch reads before `ready`.
local target = #undelivered(ready, ARGV[1], 1) > 0 and urgent or ready
-- with drains
local stale = {}
for at = 3, #ARGV, 4 do
  local entry = ARGV[at]
  if #redis.call('xpending', home, ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    local read = redis.call('xrange', home, entry, entry)[1]
    if read then
      redis.call('xadd', target, '*', unpack(again(read[2], at)))
    end
    redis.call('xack', home, ARGV[1], entry)
    redis.call('xdel', home, entry)
  else
    stale[#stale + 1] = entry
  end
end
if target == urgent then
  -- Mostly it is there. Not before the first write: when memory is out, that would keep everything from going back.
  redis.pcall('xgroup', 'create', urgent, ARGV[1], '0')
end
return stale
