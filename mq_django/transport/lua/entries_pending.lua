-- Read a page of pending deliveries, without long values.
--
-- KEYS[1]  stream    {queue}:ready or :front   STREAM
-- ARGV[1]  group
-- ARGV[2]  first   an entry, '(' and an entry, or '-'
-- ARGV[3]  limit   messages, at most 501
-- ARGV[4]  bytes   a longer value is replaced by its length
--
-- Returns for each: entry, consumer, ms since it was delivered or extended, {field, value or its length, ...}.

-- with lists
-- with pages
local reply = {}
-- XPENDING fails when the stream or group does not exist: then nothing is pending.
local pending = redis.pcall('xpending', KEYS[1], ARGV[1], ARGV[2], '+', ARGV[3])
if pending.err then
  if string.find(pending.err, 'NOGROUP', 1, true) then
    return reply
  end
  return pending
end
for _, held in ipairs(pending) do
  local found = redis.call('xrange', KEYS[1], held[1], held[1])[1]
  add_all(reply, held[1], held[2], held[3], found and truncate(found[2], tonumber(ARGV[4])) or {})
end
return reply
