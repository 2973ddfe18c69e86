-- Hide deliveries of an RSMQ queue until their next attempt.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that are no attempts, and more
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried     ZSET   score as in zset: the message waits for a retry
-- KEYS[6]  minutes    {namespace}:<queue>:mq:counters:m:<hour>   HASH     counters; optional, with the next
-- KEYS[7]  hours      {namespace}:<queue>:mq:counters:h:<day>    HASH     counters
-- ARGV[1]  consumer   must still hold each delivery
-- ARGV[2]  channel    gets the new first time at which a message is visible
-- then for each delivery: the receipt, ms from now, '1' if it must run alone because it killed its process or 'free' if
-- this receive is no attempt, its attempt history
-- then optionally counters: see parts/counted
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed.

-- with clock
-- with counted
-- with increment
-- with rsmq_receipts
-- with settle
-- with types
-- with due_times
local zset, hash, owners, notes, retried, minutes, hours = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash', [retried] = 'zset' })
if wrong then
  return wrong
end

local counters, now, first = take_counters(ARGV, minutes, hours), now_ms(), first_due(zset)
local receipts = rsmq_receipts(zset, hash, owners, ARGV[1])
local stale = counted(receipts, counters, settle_each, ARGV, 3, 4, function(id, at)
  local score = due_at('+', ARGV[at + 1], now)
  redis.call('zadd', zset, score, id)
  redis.call('zadd', retried, score, id)
  local suspected = redis.call('hget', notes, id .. ':alone') == 'suspect'
  redis.call('hdel', notes, id .. ':alone')
  if ARGV[at + 2] == '1' then
    if suspected then
      -- It killed its process the first time, too: that receive counts as an attempt now.
      increment(notes, id .. ':free', -1)
    end
    redis.call('hset', notes, id .. ':alone', '1')
  elseif ARGV[at + 2] == 'free' then
    increment(notes, id .. ':free', 1)
  end
  redis.call('hset', notes, id .. ':story', ARGV[at + 3])
end)
local head = first_due(zset)
if head ~= first then
  redis.call('publish', ARGV[2], 'due ' .. head)
end
return stale
