-- Read some members of a sorted set with their bodies, in no order. A scan from cursor '0' to cursor '0' returns each
-- member that is there all the time, whatever is added or removed meanwhile.
--
-- KEYS[1]  waiters   {queue}:due, :unhandled, :parked or :priority   ZSET
-- KEYS[2]  waiting   {queue}:waiting                                 HASH   member -> body
-- ARGV[1]  cursor
-- ARGV[2]  count     members, about
-- ARGV[3]  bytes     a longer body is replaced by its length
--
-- Returns {next cursor, then for each: member, score, body or its length, or -1 for none}.

local found = redis.call('zscan', KEYS[1], ARGV[1], 'count', ARGV[2])
local reply, members = { found[1] }, found[2]
for at = 1, #members, 2 do
  local length = redis.call('hstrlen', KEYS[2], members[at])
  local body = length == 0 and -1 or length
  if length > 0 and length <= tonumber(ARGV[3]) then
    body = redis.call('hget', KEYS[2], members[at])
  end
  reply[#reply + 1] = members[at]
  reply[#reply + 1] = members[at + 1]
  reply[#reply + 1] = body
end
return reply
