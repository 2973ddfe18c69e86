-- Acknowledge deliveries of workflows' steps in a queue with lines, and note how they ended. See `lines_ack` for other
-- messages.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- KEYS[6]  notes      {queue}:step-notes         HASH     see parts/step_notes
-- KEYS[7]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[8]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the event, the added steps, the value
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with settle
-- with step_notes
-- with line_receipts
-- with types
local stream = KEYS[1]
local notes, minutes, hours = unpack(KEYS, 6, 8)

local wrong = wrong_line_keys(KEYS) or wrong_type({ [stream] = 'stream', [notes] = 'hash' })
if wrong then
  return wrong
end

local arguments = ARGV
local counters = take_counters(arguments, minutes, hours)
return counted(line_receipts(KEYS, arguments[1], arguments[2]), counters, settle_each, arguments, 3, 5, function(_, at)
  note_step(notes, unpack(arguments, at + 1, at + 4))
end)
