-- Put dead letters of another queue into this one, ready and with no attempts counted.
--
-- KEYS[1]  moved    {queue}:moved    ZSET    see parts/moved
-- KEYS[2]  ready    {queue}:ready    STREAM
-- KEYS[3]  front    {queue}:front    STREAM
-- KEYS[4]  waiting  {queue}:waiting  HASH
-- ARGV[1]  limit    messages the queue may hold; 0: no limit
-- then for each message: its origin, id and body
--
-- Returns for each: 'ACCEPTED', or 'KNOWN' when the message of this origin was accepted before; 'FULL' for the first
-- one that the limit does not allow, and nothing for those after it.

-- with types
-- with clock
-- with bodies
-- with moved
local moved, ready, front, waiting = unpack(KEYS)
check_types({ [moved] = 'zset', [ready] = 'stream', [front] = 'stream', [waiting] = 'hash' })

local limit, now, reply, failed = tonumber(ARGV[1]), now_ms(), {}, nil
local room = limit > 0 and limit - redis.call('xlen', ready) - redis.call('xlen', front) - redis.call('hlen', waiting)
for at = 2, #ARGV, 3 do
  local word = was_moved(moved, ARGV[at]) and 'KNOWN' or room and room <= 0 and 'FULL' or 'ACCEPTED'
  if word == 'ACCEPTED' then
    failed = add_entry(ready, ARGV[at + 1], ARGV[at + 2])
    if failed then
      break
    end
    note_moved(moved, ARGV[at], now)
    room = room and room - 1
  end
  reply[#reply + 1] = word
  if word == 'FULL' then
    break
  end
end
forget_moved(moved, now)
return failed or reply
