-- Take deliveries that nobody here can handle out of the way, uncharged.
--
-- KEYS[1]  home       {queue}:ready or :urgent   STREAM
-- KEYS[2]  unhandled  {queue}:unhandled          ZSET   score: the name's hash
-- KEYS[3]  waiting    {queue}:waiting            HASH   member -> body
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then for each delivery: the entry's id, the message's id, the score, the body
--
-- Returns the ids of the entries that the consumer no longer holds; these are left as they are.

-- with types
local wrong = wrong_type({ [KEYS[2]] = 'zset', [KEYS[3]] = 'hash' })
if wrong then
  return wrong
end

-- with bodies
-- with drains
local stale = {}
for at = 3, #ARGV, 4 do
  local entry = ARGV[at]
  if #redis.call('xpending', KEYS[1], ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    redis.call('zadd', KEYS[2], ARGV[at + 2], put_body(KEYS[3], ARGV[at + 1], ARGV[at + 3]))
    redis.call('xack', KEYS[1], ARGV[1], entry)
    redis.call('xdel', KEYS[1], entry)
  else
    stale[#stale + 1] = entry
  end
end
return stale
