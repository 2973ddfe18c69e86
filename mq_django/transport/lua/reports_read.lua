-- Read the progress of messages.
--
-- KEYS     progress   {queue}:progress:<id>   HASH   run, data, progress, positions
--
-- Returns for each its JSON text; or false if there is none, it has more than 8,192 bytes, or the key has another type.

local found = {}
for i, key in ipairs(KEYS) do
  local length = redis.pcall('hstrlen', key, 'progress')
  found[i] = type(length) == 'number' and length > 0 and length <= 8192 and redis.call('hget', key, 'progress')
end
return found
