-- Read some messages of an RSMQ queue, without long bodies.
--
-- KEYS[1]  hash    {namespace}:<queue>:Q   HASH   attributes, bodies, counts
-- ARGV[1]  bytes   of a longer body its length is returned
-- then pairs of a number without a meaning here and an id, at most 500
--
-- Returns for each its body, its length, or '' when it is not there.

local reply = {}
for at = 3, #ARGV, 2 do
  local body = redis.call('hget', KEYS[1], ARGV[at]) or ''
  reply[#reply + 1] = #body > tonumber(ARGV[1]) and #body or body
end
return reply
