-- Delete notes about workflows' steps that their runs have got.
--
-- KEYS[1]  notes   {queue}:step-notes   HASH   see parts/step_notes
-- ARGV for each: the message's id, the first word of the note: its number, if it is no other program's
--
-- Returns how many were deleted. A note that was replaced meanwhile stays.

local deleted = 0
for at = 1, #ARGV, 2 do
  local known = redis.call('hget', KEYS[1], ARGV[at])
  if known and string.match(known, '^[^ ]*') == ARGV[at + 1] then
    deleted = deleted + redis.call('hdel', KEYS[1], ARGV[at])
  end
end
return deleted
