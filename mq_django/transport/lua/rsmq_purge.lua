-- Delete visible and waiting messages of an RSMQ queue, but none that a program may have received.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  notes      {namespace}:<queue>:mq:notes       HASH
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled   ZSET
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried     ZSET   score as in zset: the message waits for a retry
-- ARGV[1]  limit      messages to check, at most 500
-- ARGV[2]  rank       of the first message to check
-- ARGV[3]  place      'ready', 'delayed' or 'unhandled'; '' for all
--
-- Returns {deleted, not deleted, checked}.

-- with clock
-- with rsmq_messages
-- with rsmq_places
local zset, hash, notes, unhandled, retried = unpack(KEYS)
local now, deleted, kept = now_ms(), 0, 0
local found = redis.call('zrange', zset, ARGV[2], ARGV[2] + ARGV[1] - 1, 'withscores')
for at = 1, #found, 2 do
  local id = found[at]
  local place = tonumber(found[at + 1]) <= now and 'READY' or place_of(zset, hash, unhandled, retried, id)
  if place and (ARGV[3] == '' or string.lower(place) == ARGV[3]) then
    remove_message(zset, hash, notes, id)
    redis.call('zrem', unhandled, id)
    redis.call('zrem', retried, id)
    deleted = deleted + 1
  else
    kept = kept + 1
  end
end
return { deleted, kept, #found / 2 }
