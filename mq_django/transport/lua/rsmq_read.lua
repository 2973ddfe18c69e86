-- Read messages of an RSMQ queue by their ids, without long bodies.
--
-- KEYS[1]  hash    {namespace}:<queue>:Q   HASH   attributes, bodies, counts
-- ARGV[1]  bytes   a longer body is replaced by its length
-- then pairs of a number, which is ignored, and an id, at most 500
--
-- Returns for each its body, its length, or '' when it does not exist.

local reply = {}
for at = 3, #ARGV, 2 do
  local body = redis.call('hget', KEYS[1], ARGV[at]) or ''
  reply[#reply + 1] = #body > tonumber(ARGV[1]) and #body or body
end
return reply
