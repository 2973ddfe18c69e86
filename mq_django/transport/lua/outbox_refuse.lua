-- Note that rows of an outbox are not published, because they never can be.
--
-- KEYS[1]  mark    {queue}:outbox  HASH  see parts/outbox_mark
-- ARGV[1]  field   of the mark: the outbox, and the number of partitions
-- ARGV[2]  number  of the claim
-- ARGV[3]  token   of the claim
-- ARGV[4]  after   the row before the first of these, 0 for the first row of the claim
-- then for each: the row and the reason. Without any the mark is written as it is.
--
-- Returns {word, number, token, row, ended, refused}: the mark. The word is DONE, GAP, BEHIND, FOREIGN or ENDED, as that of
-- outbox_publish. Only with DONE anything is written.

-- with types
-- with outbox_mark
local key, field, number, token, after = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
check_types({ [key] = 'hash' })
local mark = read_mark(key, field)
local other = begin_chunk(mark, number, token, after)
if other then
  return mark_reply(other, mark)
end
for at = 5, #ARGV, 2 do
  refuse(mark, ARGV[at], ARGV[at + 1])
  mark.done = tonumber(ARGV[at])
end
write_mark(key, field, mark)
return mark_reply('DONE', mark)
