-- Read a page of a log, or of the history of a queue, without long values.
--
-- KEYS[1]  log     {topic}:log or {queue}:handled   STREAM
-- ARGV[1]  first   start of the range, as in XRANGE
-- ARGV[2]  last    end of the range, as in XRANGE
-- ARGV[3]  order   'xrange', or 'xrevrange' for newest first
-- ARGV[4]  limit   entries, at most 501
-- ARGV[5]  bytes   a longer value is replaced by its length
--
-- Returns {1 if the page ends before its limit because it has many bytes, then for each: entry, {field, value or its length,
-- ...}}.

-- with lists
-- with pages
local first, last = ARGV[1], ARGV[2]
if ARGV[3] == 'xrevrange' then
  first, last = last, first
end
local reply = { 0 }
reply[1] = each_in_range(ARGV[3], KEYS[1], first, last, tonumber(ARGV[4]), function(entry, fields)
  add_all(reply, entry, truncate(fields, tonumber(ARGV[5])))
end)
return reply
