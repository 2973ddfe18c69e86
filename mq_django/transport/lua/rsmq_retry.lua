-- Let deliveries of an RSMQ queue be seen again later, for another attempt.
--
-- KEYS[1]  zset       {namespace}:<queue>                ZSET   score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q              HASH   attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners      HASH   id -> consumer and receive count
-- KEYS[4]  notes      {namespace}:<queue>:mq:notes       HASH   id:free -> receives that do not count, and more
-- KEYS[5]  retried    {namespace}:<queue>:mq:retried     ZSET   as in zset: with the same score, nobody has it
-- ARGV[1]  consumer   must still hold each delivery
-- ARGV[2]  channel    told that something is visible earlier than was known
-- then for each delivery: the receipt, ms from now, '1' if it must run alone, as what killed its process, and the story
-- of its attempts
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

-- with clock
-- with counted
-- with rsmq_receipts
-- with settle
-- with types
-- with wake
local zset, hash, owners, notes, retried = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash', [retried] = 'zset' })
if wrong then
  return wrong
end

local now, first = now_ms(), first_due(zset)
local stale = settle_each(rsmq_receipts(zset, hash, owners, ARGV[1]), ARGV, 3, 4, function(id, at)
  local score = due_at('+', ARGV[at + 1], now)
  redis.call('zadd', zset, score, id)
  redis.call('zadd', retried, score, id)
  local suspected = redis.call('hget', notes, id .. ':alone') == 'suspect'
  redis.call('hdel', notes, id .. ':alone')
  if ARGV[at + 2] == '1' then
    if suspected then
      -- It was the killer the first time, too: that receive counts now.
      counted(notes, id .. ':free', -1)
    end
    redis.call('hset', notes, id .. ':alone', '1')
  end
  redis.call('hset', notes, id .. ':story', ARGV[at + 3])
end)
local head = first_due(zset)
if head ~= first then
  redis.call('publish', ARGV[2], 'due ' .. head)
end
return stale
