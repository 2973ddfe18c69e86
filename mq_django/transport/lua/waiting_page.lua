-- Read members of a sorted set with their bodies: a page of them by rank, or some in no order. A scan from cursor '0' to
-- cursor '0' returns each member that is there all the time, whatever is added or removed meanwhile.
--
-- KEYS[1]  waiters  {queue}:due, :unhandled, :parked or :priority   ZSET
-- KEYS[2]  waiting  {queue}:waiting                                 HASH   member -> body
-- ARGV[1]  how      'PAGE' or 'SCAN'
-- ARGV[2]  first    rank, or the cursor
-- ARGV[3]  last     rank, or how many members a scan returns, about
-- ARGV[4]  bytes    a longer body is replaced by its length
--
-- Returns {now in ms, next cursor, then for each: member, score, body or its length, or -1 for none}.

-- with clock
-- with lists
-- with pages
local found
if ARGV[1] == 'SCAN' then
  found = redis.call('zscan', KEYS[1], ARGV[2], 'count', ARGV[3])
else
  found = { '0', redis.call('zrange', KEYS[1], ARGV[2], ARGV[3], 'withscores') }
end
local reply = { now_ms(), found[1] }
for at = 1, #found[2], 2 do
  local member = found[2][at]
  add_all(reply, member, found[2][at + 1], body_or_length(KEYS[2], member, tonumber(ARGV[4])))
end
return reply
