-- Hold messages of a queue by name or key, or end a hold, and notify its supervisors and consumers.
--
-- KEYS[1]  holds      {queue}:holds       HASH   see parts/holds
-- KEYS[2]  consumers  {queue}:consumers   HASH   `holds:changed` counts the changes
-- ARGV[1]  subject    see parts/holds
-- ARGV[2]  hold       a JSON object; '' to end the hold
-- ARGV[3]  most       holds of a queue
-- ARGV[4]  wake       channel
--
-- Returns 'CHANGED'; 'MISSING' when there is no hold to end; or 'FULL' when the queue has so many holds.

-- with types
-- with numbers
-- with holds
local holds, consumers, subject = KEYS[1], KEYS[2], ARGV[1]
check_types({ [holds] = 'hash', [consumers] = 'hash' })

local found = hold_of(redis.call('hget', holds, subject))
if ARGV[2] == '' then
  if not found or found.state == 'ended' then
    return 'MISSING'
  end
  -- A write that Redis allows when memory is out, and so the next one: a full Redis can be emptied.
  redis.call('hdel', holds, '')
  found.state = 'ended'
  redis.call('hset', holds, subject, cjson.encode(found))
else
  if not found and redis.call('hlen', holds) >= tonumber(ARGV[3]) then
    return 'FULL'
  end
  redis.call('hset', holds, subject, ARGV[2])
end
tell_of_holds(consumers, ARGV[4])
return 'CHANGED'
