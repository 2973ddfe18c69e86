-- Read a page of a log, or of the history of a queue, without long values.
--
-- KEYS[1]  log     {topic}:log or {queue}:handled   STREAM
-- ARGV[1]  first   start of the range, as in XRANGE
-- ARGV[2]  last    end of the range, as in XRANGE
-- ARGV[3]  order   'xrange', or 'xrevrange' for newest first
-- ARGV[4]  limit   entries, at most 501
-- ARGV[5]  bytes   a longer value is replaced by its length
--
-- Returns for each: entry, {field, value or its length, ...}.

-- with pages
local first, last = ARGV[1], ARGV[2]
if ARGV[3] == 'xrevrange' then
  first, last = last, first
end
local reply = {}
for _, found in ipairs(redis.call(ARGV[3], KEYS[1], first, last, 'count', ARGV[4])) do
  reply[#reply + 1] = found[1]
  reply[#reply + 1] = truncate(found[2], tonumber(ARGV[5]))
end
return reply
