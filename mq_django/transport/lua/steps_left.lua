-- Return notes about workflows' steps that nobody has delivered for some time.
--
-- KEYS[1]  notes    {queue}:step-notes   HASH   see parts/step_notes
-- ARGV[1]  age      ms
-- ARGV[2]  cursor   of the call before; '0' at first
-- ARGV[3]  about how many notes this call looks at
--
-- Returns the cursor for the next call, '0' at the end; then for each note the message's id and the value. A note from
-- the future is another program's, or the clock was set back: nobody waits for it.

-- with types
-- with clock
-- with lists
-- with numbers
check_types({ [KEYS[1]] = 'hash' })

local now, hour = now_us(), 3600000000
local newest = now - tonumber(ARGV[1]) * 1000
local found = redis.call('hscan', KEYS[1], ARGV[2], 'count', ARGV[3])
local reply = { found[1] }
for at = 1, #found[2], 2 do
  local id, note = found[2][at], found[2][at + 1]
  local number = number_of(string.match(note, '^%d+'))
  if id ~= '#' and (number <= newest or number > now + hour) then
    add_all(reply, id, note)
  end
end
return reply
