-- Reassign deliveries of a queue with lines to another consumer, or extend them if it is the same one. No attempt is counted.
--
-- KEYS[1..5]  stream, permits, lines, checks, control: see parts/line_receipts
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- ARGV[3]  new owner
-- then the ids of the entries
--
-- Returns the entry ids that the consumer no longer holds; these deliveries are not changed. Deliveries whose entries were
-- deleted end when they are reassigned, and are among these.

-- with settle
-- with line_receipts
local wrong = wrong_line_keys(KEYS)
if wrong then
  return wrong
end
local receipts = line_receipts(KEYS, ARGV[1], ARGV[2], #ARGV)
if ARGV[3] ~= ARGV[2] then
  -- Another program may have deleted the entry, so nobody else can run the message. It ends here: its key would wait for
  -- as long as this consumer exists.
  local held = receipts.held
  receipts.held = function(entry)
    local found = held(entry)
    if found and not receipts.fields(entry) then
      receipts.finish(entry)
      return nil
    end
    return found
  end
end
return reassign(receipts, ARGV[3], ARGV, 4)
