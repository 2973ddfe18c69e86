-- Note up to where an outbox has read the messages that have ended, and delete up to 100 entries that all outboxes have
-- read.
--
-- KEYS[1]  ended    {queue}:ended    STREAM   see ended_add
-- KEYS[2]  marks    {queue}:outbox   HASH     <outbox> .. ':ended' -> the last entry that it has read
-- ARGV[1]  outbox
-- ARGV[2]  last     entry that it has read
--
-- Returns 'DONE'.

-- with clock
-- with stream_state
-- with types
local ended, marks = KEYS[1], KEYS[2]
check_types({ [ended] = 'stream', [marks] = 'hash' })
redis.call('hset', marks, ARGV[1] .. ':ended', ARGV[2])

-- Up to where all outboxes have read. One that has published here may not have read yet. One that has left an entry
-- unread for an hour is not waited for: it may be that of a database that is used no more.
local read, first = {}, nil
local words = redis.call('hgetall', marks)
for at = 1, #words, 2 do
  local outbox, kind = string.match(words[at], '^(.*):(%w+)$')
  if kind == 'ended' and string.match(words[at + 1], '^%d+%-%d+$') then
    read[outbox] = words[at + 1]
  elseif outbox and kind ~= 'ended' and kind ~= 'refused' then
    read[outbox] = read[outbox] or '0-0'
  end
end
local late = now_ms() - 3600000
for _, entry in pairs(read) do
  local following = redis.call('xrange', ended, '(' .. entry, '+', 'count', 1)[1]
  local is_late = following and tonumber(string.match(following[1], '^%d+')) < late
  if not is_late and (not first or is_before(entry_id(entry), entry_id(first))) then
    first = entry
  end
end
for _, entry in ipairs(first and redis.call('xrange', ended, '-', first, 'count', 100) or {}) do
  redis.call('xdel', ended, entry[1])
end
return 'DONE'
