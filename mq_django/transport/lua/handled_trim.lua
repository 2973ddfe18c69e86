-- Remove the oldest messages from the history of a queue: those above its count, and those that are too old.
--
-- KEYS[1]  handled   {queue}:handled       STREAM   fields of an entry: for each message its id and a line of JSON
-- KEYS[2]  ids       {queue}:handled-ids   HASH     i:<id>: the latest entry with the message; total: messages
-- ARGV[1]  age       ms that a message is kept
-- ARGV[2]  count     messages that are kept
-- ARGV[3]  limit     entries to remove, at most 5 with 100 messages each
--
-- Returns {removed messages, 1 if there may be more to remove}; or an error when a key has another type.

-- with types
-- with clock
-- with numbers
local handled, ids = KEYS[1], KEYS[2]
check_types({ [handled] = 'stream', [ids] = 'hash' })

if redis.call('exists', handled) == 0 or redis.call('xlen', handled) == 0 then
  redis.call('del', ids)
  return { 0, 0 }
end

-- A total that is no count is ignored: what is too old is removed all the same.
local total = number_of(redis.call('hget', ids, 'total'))
local surplus = total <= 8796093022208 and total - ARGV[2] or 0
local too_old = now_ms() - ARGV[1]

local over, gone, removed = {}, {}, 0
for _, found in ipairs(redis.call('xrange', handled, '-', '+', 'count', ARGV[3])) do
  local entry, lines = found[1], found[2]
  local count = #lines / 2
  if surplus < count and tonumber(string.match(entry, '^%d+')) >= too_old then
    break
  end
  over[#over + 1] = entry
  surplus, removed = surplus - count, removed + count
  for at = 1, #lines, 2 do
    -- A message that was handled again is in a later entry.
    local field = 'i:' .. lines[at]
    if redis.call('hget', ids, field) == entry then
      gone[#gone + 1] = field
    end
  end
end
if #over == 0 then
  return { 0, 0 }
end

redis.call('xdel', handled, unpack(over))
for at = 1, #gone, 1000 do
  redis.call('hdel', ids, unpack(gone, at, math.min(#gone, at + 999)))
end
increment(ids, 'total', -removed)
return { removed, #over >= tonumber(ARGV[3]) and 1 or 0 }
