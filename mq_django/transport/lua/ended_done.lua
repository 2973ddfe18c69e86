-- Note up to where an outbox has read the messages that have ended, and delete what each outbox has read.
--
-- KEYS[1]  ended    {queue}:ended    STREAM   see ended_add
-- KEYS[2]  marks    {queue}:outbox   HASH     <outbox> .. ':ended' -> the last entry that it has read
-- ARGV[1]  outbox
-- ARGV[2]  last     entry that it has read
--
-- Returns 'DONE'.

-- with types
local ended, marks = KEYS[1], KEYS[2]
local wrong = wrong_type({ [ended] = 'stream', [marks] = 'hash' })
if wrong then
  return wrong
end
redis.call('hset', marks, ARGV[1] .. ':ended', ARGV[2])

local first, words = nil, redis.call('hgetall', marks)
for at = 1, #words, 2 do
  if string.sub(words[at], -6) == ':ended' then
    -- The milliseconds are enough: entries of the same one stay.
    local ms = tonumber(string.match(words[at + 1], '^%d+')) or 0
    first = math.min(first or ms, ms)
  end
end
redis.call('xtrim', ended, 'minid', '~', string.format('%.0f', first))
return 'DONE'
