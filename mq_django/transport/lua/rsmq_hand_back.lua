-- Return deliveries of an RSMQ queue to their former place. No attempt is counted.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- ARGV[1]  consumer   must still hold each delivery
-- ARGV[2]  channel    gets the new first time at which a message is visible
-- then for each delivery: the receipt; when it was sent, ms; 'lost', 'suspect' or '': see parts/hand_back
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with clock
-- with increment
-- with rsmq_receipts
-- with settle
-- with types
local zset, hash, owners, notes = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash' })
if wrong then
  return wrong
end

local now = now_ms()
local stale = settle_each(rsmq_receipts(zset, hash, owners, ARGV[1]), ARGV, 3, 3, function(id, at)
  redis.call('zadd', zset, string.format('%.0f', math.min(now, ARGV[at + 1])), id)
  -- RSMQ counts every receive; this one is no attempt.
  increment(notes, id .. ':free', 1)
  if ARGV[at + 2] == 'lost' then
    redis.call('hset', notes, id .. (redis.call('hexists', notes, id .. ':lost') == 1 and ':alone' or ':lost'), '1')
  elseif ARGV[at + 2] == 'suspect' then
    redis.call('hsetnx', notes, id .. ':alone', 'suspect')
  end
end)
redis.call('publish', ARGV[2], string.format('due %.0f', now))
return stale
