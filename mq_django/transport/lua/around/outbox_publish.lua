-- Publish a chunk of rows of an outbox by the script of a publish, which is the function `inner`, and note that.
--
-- What a claim has published is known here, in the slot of the messages, and nowhere else. So a chunk is published once,
-- however late it is sent again.
--
-- KEYS  the keys of the script that publishes, then:
-- KEYS[last - n]..  results  {queue}:result:<id>  STRING  for each result
-- KEYS[last]        mark     {queue}:outbox       HASH    see parts/outbox_mark
-- ARGV  the arguments of the script that publishes, then for each result: the id of its message, its text, its TTL in ms; then:
-- ARGV[last - 7]  field    of the mark: the outbox, and the number of partitions
-- ARGV[last - 6]  number   of the claim
-- ARGV[last - 5]  token    of the claim
-- ARGV[last - 4]  after    the row before the first of this chunk, 0 for the first row of the claim
-- ARGV[last - 3]  row      the last one of this chunk
-- ARGV[last - 2]  answers  what that script returns: 'holder' (its word and who has the unique key), 'ids' or ''
-- ARGV[last - 1]  refuses  the reason for which the row is refused if its unique key is taken; '': it is not
-- ARGV[last]      results  their number
--
-- Returns {word, number, token, row, ended, refused, answer}: the mark, and what the script of the publish has returned.
-- The word is DONE, FULL, or, without a call of the script, GAP: another row comes next; BEHIND: there is a later claim;
-- FOREIGN: this number is that of another claim; ENDED: the claim was ended. Only with DONE anything is written.

-- with types
-- with outbox_mark
local count = tonumber(table.remove(ARGV))
local refuses, answers = table.remove(ARGV), table.remove(ARGV)
local row, after = table.remove(ARGV), tonumber(table.remove(ARGV))
local token, number, field = table.remove(ARGV), tonumber(table.remove(ARGV)), table.remove(ARGV)
local key, results = table.remove(KEYS), {}
for at = count, 1, -1 do
  local ttl, text, id = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  results[at] = { key = table.remove(KEYS), id = id, text = text, ttl = ttl }
end

check_types({ [key] = 'hash' })
local mark = read_mark(key, field)
local other = begin_chunk(mark, number, token, after)
if other then
  return mark_reply(other, mark)
end

local answer = inner()
if type(answer) == 'table' and answer.err then
  return answer
elseif answer == 'FULL' then
  return mark_reply('FULL', mark, answer)
end
local is_taken = answer == 'EXISTS' or answers == 'holder' and answer[1] == 'TAKEN'
if is_taken and refuses ~= '' then
  refuse(mark, row, refuses)
end
for at, result in ipairs(is_taken and {} or results) do
  -- Another message may keep the unique key.
  if answers ~= 'ids' or answer[at] == result.id then
    redis.call('set', result.key, result.text, 'px', result.ttl)
  end
end
mark.done = tonumber(row)
write_mark(key, field, mark)
return mark_reply('DONE', mark, answer)
