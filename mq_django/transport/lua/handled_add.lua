-- Add what became of messages to the history of their queue, before the command that settles them. Those that the consumer
-- no longer holds are left out: whoever holds them adds them.
--
-- KEYS[1]  stream    {queue}:ready or :urgent   STREAM
-- KEYS[2]  handled   {queue}:handled            STREAM   fields of an entry: for each message its id and a line of JSON
-- KEYS[3]  ids       {queue}:handled-ids        HASH     i:<id>: the latest entry with the message; total: messages
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  ttl       ms for which the history is kept
-- then for each, at most 100: the id of its entry, the message's id, the line
--
-- Returns the number of messages that were added; or an error when a key has another type.

-- with types
-- with held
-- with increment
local handled, ids = KEYS[2], KEYS[3]
local wrong = wrong_type({ [handled] = 'stream', [ids] = 'hash' })
if wrong then
  return wrong
end

local holds, lines = holding(KEYS[1], ARGV[1], ARGV[2], ARGV[4], (#ARGV - 3) / 3), {}
for at = 4, #ARGV, 3 do
  if holds(ARGV[at]) then
    lines[#lines + 1] = ARGV[at + 1]
    lines[#lines + 1] = ARGV[at + 2]
  end
end
if #lines == 0 then
  return 0
end

local entry, index = redis.call('xadd', handled, '*', unpack(lines)), {}
for at = 1, #lines, 2 do
  index[at], index[at + 1] = 'i:' .. lines[at], entry
end
redis.call('hset', ids, unpack(index))
increment(ids, 'total', #lines / 2)
redis.call('pexpire', handled, ARGV[3])
redis.call('pexpire', ids, ARGV[3])
return #lines / 2
