-- Read a page of undelivered entries, without long values.
--
-- KEYS[1]  stream    {queue}:ready or :front   STREAM
-- ARGV[1]  group
-- ARGV[2]  after   an entry, or '' to begin with the first undelivered one
-- ARGV[3]  limit   messages, at most 501
-- ARGV[4]  bytes   a longer value is replaced by its length
--
-- Returns {1 if the page ends before its limit because it has many bytes, then for each: entry, {field, value or its length,
-- ...}}.

-- with lists
-- with pages
-- with undelivered
local first = undelivered(KEYS[1], ARGV[1], 1)[1]
local reply = { 0 }
if not first then
  return reply
end

local from = first[1]
if ARGV[2] ~= '' then
  -- Consumers may have read past the end of the previous page.
  local next = redis.call('xrange', KEYS[1], '(' .. ARGV[2], '+', 'count', 1)[1]
  local held = next and redis.call('xrange', KEYS[1], next[1], '(' .. from, 'count', 1)[1]
  if not held then
    from = '(' .. ARGV[2]
  end
end
reply[1] = each_in_range('xrange', KEYS[1], from, '+', tonumber(ARGV[3]), function(entry, fields)
  add_all(reply, entry, truncate(fields, tonumber(ARGV[4])))
end)
return reply
