-- Read a page of waiting messages, with their bodies.
--
-- KEYS[1]  waiters   {queue}:due or :unhandled   ZSET
-- KEYS[2]  waiting   {queue}:waiting             HASH   member -> body
-- ARGV[1]  first     rank
-- ARGV[2]  last      rank
-- ARGV[3]  bytes     a longer body is replaced by its length
--
-- Returns {now in ms, number of messages, then for each of the page: member, score, body or its length, or -1 for
-- none}.

local time = redis.call('time')
local reply = { time[1] * 1000 + math.floor(time[2] / 1000), redis.call('zcard', KEYS[1]) }
local page = redis.call('zrange', KEYS[1], ARGV[1], ARGV[2], 'withscores')
for at = 1, #page, 2 do
  local length = redis.call('hstrlen', KEYS[2], page[at])
  local body = length == 0 and -1 or length
  if length > 0 and length <= tonumber(ARGV[3]) then
    body = redis.call('hget', KEYS[2], page[at])
  end
  reply[#reply + 1] = page[at]
  reply[#reply + 1] = page[at + 1]
  reply[#reply + 1] = body
end
return reply
