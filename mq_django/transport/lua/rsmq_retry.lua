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

-- with types
-- with clock
-- with counted
local zset, hash, owners, notes, retried = unpack(KEYS)
local wrong = wrong_type({ [owners] = 'hash', [notes] = 'hash', [retried] = 'zset' })
if wrong then
  return wrong
end

-- with rsmq_receipts
-- with rsmq_drains
local now = now_ms()
local first = redis.call('zrange', zset, 0, 0, 'withscores')[2]
local stale = {}
for at = 3, #ARGV, 4 do
  local id = held(ARGV[at])
  if id then
    local score = due_at('+', ARGV[at + 1], now)
    redis.call('zadd', zset, score, id)
    redis.call('zadd', retried, score, id)
    redis.call('hdel', owners, id)
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
  else
    stale[#stale + 1] = ARGV[at]
  end
end
local head = redis.call('zrange', zset, 0, 0, 'withscores')[2]
if head ~= first then
  redis.call('publish', ARGV[2], 'due ' .. head)
end
return stale
