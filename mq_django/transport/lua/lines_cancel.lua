-- Delete deliveries of a queue with lines that were cancelled, forget the requests for that, and let the next messages of
-- their keys run.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  cancels   {queue}:cancels            ZSET   ids of messages that are to be cancelled
-- KEYS[7]  notes     {queue}:step-notes         HASH   see parts/step_notes
-- ARGV[1]  group
-- ARGV[2]  consumer  must still hold each delivery
-- then for each delivery: the entry's id, the message's id
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with types
-- with settle
-- with step_notes
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
local notes = usable_notes(KEYS[7])
local has_requests = not wrong_type({ [KEYS[6]] = 'zset' })
return settle_each(line_receipts(KEYS, ARGV[1], ARGV[2]), ARGV, 3, 2, function(_, at)
  -- A key of another type has none, and must not keep the delivery.
  if has_requests then
    redis.call('zrem', KEYS[6], ARGV[at + 1])
  end
  note_step(notes, ARGV[at + 1], 'failed', '', 'cancelled')
end)
