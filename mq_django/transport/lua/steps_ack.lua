-- Acknowledge deliveries of workflows' steps, and note how they ended. See `stream_ack` for other messages.
--
-- KEYS[1]  stream     {queue}:ready or :urgent   STREAM
-- KEYS[2]  notes      {queue}:step-notes         HASH     see parts/step_notes
-- KEYS[3]  minutes    {queue}:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[4]  hours      {queue}:counters:h:<day>    HASH     counters
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the event, the added steps, the value
-- then optionally counters: see parts/counted
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed.

-- with counted
-- with settle
-- with step_notes
-- with stream_receipts
-- with types
local stream, notes, minutes, hours = unpack(KEYS)

local wrong = wrong_type({ [stream] = 'stream', [notes] = 'hash' })
if wrong then
  return wrong
end

local arguments = ARGV
local counters = take_counters(arguments, minutes, hours)
return counted(stream_receipts(stream, arguments[1], arguments[2]), counters, settle_each, arguments, 3, 5, function(_, at)
  note_step(notes, unpack(arguments, at + 1, at + 4))
end)
