-- Return messages that have ended, after those that an outbox has read.
--
-- KEYS[1]  ended    {queue}:ended    STREAM   see ended_add
-- KEYS[2]  marks    {queue}:outbox   HASH     <outbox> .. ':ended' -> the last entry that it has read
-- ARGV[1]  outbox
-- ARGV[2]  count    of entries
--
-- Returns the last of these entries, '' if there is none; then the ids.

-- with types
check_types({ [KEYS[1]] = 'stream', [KEYS[2]] = 'hash' })
local read = redis.call('hget', KEYS[2], ARGV[1] .. ':ended') or '0-0'
if not string.match(read, '^%d+%-%d+$') then
  read = '0-0'
end
local reply = { '' }
for _, entry in ipairs(redis.call('xrange', KEYS[1], '(' .. read, '+', 'count', ARGV[2])) do
  reply[1] = entry[1]
  for at = 1, #entry[2], 2 do
    reply[#reply + 1] = entry[2][at]
  end
end
return reply
