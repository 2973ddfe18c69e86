-- Count the fields of counter hashes.
--
-- KEYS  {queue}:counters:m:<hour> or {queue}:counters:h:<day>   HASH
--
-- Returns the sum.

local count = 0
for _, key in ipairs(KEYS) do
  count = count + redis.call('hlen', key)
end
return count
