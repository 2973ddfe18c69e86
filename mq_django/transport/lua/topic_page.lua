-- Read a page of a log, without long fields.
--
-- KEYS[1]  log     {topic}:log   STREAM
-- ARGV[1]  first   where the range begins, as XRANGE has it
-- ARGV[2]  last    where it ends
-- ARGV[3]  order   'xrange', or 'xrevrange' for the newest first
-- ARGV[4]  limit   entries, at most 501
-- ARGV[5]  bytes   a longer value is left out
--
-- Returns for each: entry, {field, value or its length, ...}.

-- with cut
local first, last = ARGV[1], ARGV[2]
if ARGV[3] == 'xrevrange' then
  first, last = last, first
end
local reply = {}
for _, found in ipairs(redis.call(ARGV[3], KEYS[1], first, last, 'count', ARGV[4])) do
  reply[#reply + 1] = found[1]
  reply[#reply + 1] = cut(found[2], tonumber(ARGV[5]))
end
return reply
