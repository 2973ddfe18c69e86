-- Make unhandled messages ready: of one name, or of all.
--
-- KEYS[1]  unhandled  {queue}:unhandled  ZSET    score: hash of the name
-- KEYS[2]  waiting    {queue}:waiting    HASH    member -> body
-- KEYS[3]  ready      {queue}:ready      STREAM
-- KEYS[4]  priority   {queue}:priority   ZSET    score: see parts/ranks
-- KEYS[5]  control    {queue}:control    HASH
-- KEYS[6]  permits    {queue}:permits    ZSET    see parts/tokens; optional, with the next
-- KEYS[7]  front      {queue}:front      STREAM
-- ARGV[1]  score      of the name; '-inf' with the last argument '+inf': of all names
-- ARGV[2]  limit      messages, at most 500
-- ARGV[3]  group
-- ARGV[4]  last       the highest score; without it, that of the name
--
-- Returns the number of moved messages.

-- with types
-- with ready
-- with move_to_ready
-- with line_heads
local unhandled, waiting, ready, priority, control, permits, front = unpack(KEYS)

check_types({ [waiting] = 'hash', [ready] = 'stream', [priority] = 'zset', [control] = 'hash' })
if permits then
  check_types({ [permits] = 'zset', [front] = 'stream' })
end

local members = redis.call('zrangebyscore', unhandled, ARGV[1], ARGV[4] or ARGV[1], 'limit', 0, ARGV[2])
if #members == 0 then
  return 0
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', control, '')
local make_ready = make_ready_with(ready, priority, waiting, control, ARGV[3])
if permits then
  make_ready = with_heads(make_ready, permits, ready, front, ARGV[3])
end
local moved, failed = make_all_ready(unhandled, members, waiting, nil, make_ready)
return failed and moved == 0 and failed or moved
