-- Count how many counters some hours or days have.
--
-- KEYS  {queue}:counters:m:<hour> or {queue}:counters:h:<day>   HASH
--
-- Returns how many in all.

local count = 0
for _, key in ipairs(KEYS) do
  count = count + redis.call('hlen', key)
end
return count
