-- Read the counts and first times of an RSMQ queue's messages, its members and its counters.
--
-- KEYS[1]  zset       {namespace}:<queue>                       ZSET    score: when visible, ms
-- KEYS[2]  hash       {namespace}:<queue>:Q                     HASH    attributes, bodies, counts
-- KEYS[3]  owners     {namespace}:<queue>:mq:owners             HASH    id -> consumer and receive count
-- KEYS[4]  unhandled  {namespace}:<queue>:mq:unhandled          ZSET
-- KEYS[5]  dead       {namespace}:<queue>:mq:dead               STREAM
-- KEYS[6]  control    {namespace}:<queue>:mq:control            HASH
-- KEYS[7]  consumers  {namespace}:<queue>:mq:consumers          HASH
-- KEYS[8]  this hour  {namespace}:<queue>:mq:counters:m:<hour>  HASH
-- KEYS[9]  last hour  {namespace}:<queue>:mq:counters:m:<hour - 1>   HASH
-- KEYS[10] jobs       {namespace}:<queue>:mq:jobs          HASH
-- ARGV[1]  n          fields of `this hour`
-- then these, and then the fields of `last hour`
--
-- Returns the same as queue_stats. Pending are the messages that consumers of ours hold; those that other
-- programs hold count as delayed.

-- with clock
-- with rsmq
-- with readable
local refused = too_long(KEYS[7], KEYS[10])
if refused then
  return refused
end
local zset, hash, owners, unhandled, dead, control, consumers = unpack(KEYS)
local now, jobs = now_ms(), redis.pcall('hgetall', KEYS[10])

local function is_hidden(id)
  local score = redis.call('zscore', zset, id)
  return score and tonumber(score) > now
end

local visible = redis.call('zcount', zset, '-inf', now)
local hidden, pending, unhandled_count = redis.call('zcard', zset) - visible, 0, 0
local all = redis.call('hgetall', owners)
for at = 1, #all, 2 do
  local count = string.match(all[at + 1], ' (%d+)$')
  if is_hidden(all[at]) and redis.call('hget', hash, all[at] .. ':rc') == count then
    pending = pending + 1
  end
end
for _, id in ipairs(redis.call('zrange', unhandled, 0, 999)) do
  unhandled_count = unhandled_count + (is_hidden(id) and 1 or 0)
end

local head = redis.call('zrange', zset, 0, 0, 'withscores')[2]
local wait = next_visible(zset, now)
return {
  now,
  visible + pending,
  pending,
  math.max(0, hidden - pending - unhandled_count),
  unhandled_count,
  0,
  redis.call('xlen', dead),
  head and tonumber(head) <= now and string.format('%.0f-0', math.max(0, head)) or '',
  wait >= 0 and string.format('%.0f', now + wait) or '',
  redis.call('hget', control, 'paused') == '1' and 'PAUSED' or 'OPEN',
  redis.call('hgetall', consumers),
  counters(KEYS[8], 2, 1 + ARGV[1]),
  counters(KEYS[9], 2 + ARGV[1], #ARGV),
  redis.call('hmget', control, 'paused-by', 'paused-reason', 'paused-at', 'paused-name'),
  jobs.err and {} or jobs,
}
