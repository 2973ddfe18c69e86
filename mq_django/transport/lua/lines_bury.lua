-- Move deliveries of a queue with lines to the dead-letter queue. With `hold` in control their keys wait until the dead
-- letter is gone, else their next messages may run.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  dead       {queue}:dead               STREAM
-- KEYS[7]  dead ids   {queue}:dead-ids           HASH   message id -> entry of `dead`
-- KEYS[8]  groups     {queue}:dead-groups        HASH   see parts/dead_groups
-- KEYS[9]  notes      {queue}:step-notes         HASH   see parts/step_notes
-- KEYS[10] minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[11] hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the number of fields and values, and these
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with bury
-- with counted
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
local dead, ids, groups, notes, minutes, hours = unpack(KEYS, 6, 11)
local receipts = line_receipts(KEYS, ARGV[1], ARGV[2])
receipts.holds_key = receipts.keeps_order and redis.call('hget', KEYS[5], 'hold') == '1'
local counters = take_counters(ARGV, minutes, hours)
return counted(receipts, counters, bury, dead, ids, groups, usable_notes(notes), ARGV, 3)
