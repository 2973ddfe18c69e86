-- End a claim of an outbox: no more of its rows are published here.
--
-- KEYS[1]  mark    {queue}:outbox  HASH  see parts/outbox_mark
-- ARGV[1]  field   of the mark: the outbox, and the number of partitions
-- ARGV[2]  number  of the claim
-- ARGV[3]  token   of the claim
--
-- Returns {word, number, token, row, ended, refused}: the mark. The word is DONE, also if it was ended before; BEHIND or
-- FOREIGN, as that of outbox_publish: nothing is written.

-- with types
-- with outbox_mark
local key, field, number, token = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
check_types({ [key] = 'hash' })
local mark = read_mark(key, field)
if mark.number > number then
  return mark_reply('BEHIND', mark)
elseif mark.number == number and mark.token ~= token then
  return mark_reply('FOREIGN', mark)
elseif mark.number < number then
  mark.number, mark.token, mark.done, mark.refused = number, token, 0, ''
end
mark.is_ended = true
write_mark(key, field, mark)
return mark_reply('DONE', mark)
