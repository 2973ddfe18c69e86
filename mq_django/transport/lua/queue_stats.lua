-- Read the counts and first times of a queue's messages, its members and its counters.
--
-- KEYS[1]  ready      {queue}:ready              STREAM
-- KEYS[2]  front      {queue}:front              STREAM
-- KEYS[3]  priority   {queue}:priority           ZSET
-- KEYS[4]  due        {queue}:due                ZSET    score: due time, ms
-- KEYS[5]  unhandled  {queue}:unhandled          ZSET
-- KEYS[6]  dead       {queue}:dead               STREAM
-- KEYS[7]  control    {queue}:control            HASH
-- KEYS[8]  consumers  {queue}:consumers          HASH
-- KEYS[9]  this hour  {queue}:counters:m:<hour>  HASH
-- KEYS[10] last hour  {queue}:counters:m:<hour - 1>   HASH
-- KEYS[11]  parked  {queue}:parked  ZSET
-- KEYS[12]  jobs    {queue}:jobs    HASH
-- KEYS[13]  permits   {queue}:permits   ZSET   see parts/tokens
-- KEYS[14]  runtime-schedules   {queue}:runtime-schedules   HASH
-- KEYS[15]  holds     {queue}:holds     HASH   see parts/holds
-- ARGV[1]  group
-- ARGV[2]  n          fields of `this hour`
-- then these, and then the fields of `last hour`
--
-- Returns {now in ms, ready and pending together, pending, delayed, unhandled, parked, dead, id of the oldest
-- ready entry or '', first due time or '', 'PAUSED' or 'OPEN', consumers as flat fields and values, the counters'
-- values, twice, {who paused it, why, when in ms, the name of the action, the
-- changed limits: see parts/limit_changes}, the fields and values of its jobs, and of its
-- lines {since when the first message of one waits in ms or '', keys that wait for a dead letter, their parked messages,
-- since when the first of them does in ms or ''}, 1 if it has schedules that were made at run time, else 0,
-- the fields and values of its holds}.

-- with clock
-- with stream_state
-- with numbers
-- with readable
-- Tokens and lines that are looked at: less than 1 ms.
local MOST_TOKENS, MOST_LINES = 2000, 200
local refused = too_long(KEYS[8], KEYS[12], KEYS[15])
if refused then
  return refused
end
local jobs, holds = redis.pcall('hgetall', KEYS[12]), redis.pcall('hgetall', KEYS[15])
local deliverable, pending, oldest = redis.call('zcard', KEYS[3]), 0, ''

local function milliseconds(entry)
  return tonumber(string.match(entry, '^%d+'))
end

for i = 1, 2 do
  deliverable = deliverable + redis.call('xlen', KEYS[i])
  local after = '-'
  for _, group in ipairs(groups_of(KEYS[i])) do
    if group.name == ARGV[1] then
      pending = pending + group.pending
      after = '(' .. group['last-delivered-id']
    end
  end
  -- Fails after the largest id: then no entry follows.
  local first = redis.pcall('xrange', KEYS[i], after, '+', 'count', 1)[1]
  if first and (oldest == '' or milliseconds(first[1]) < milliseconds(oldest)) then
    oldest = first[1]
  end
end

-- Return what is known of the lines. Those of keys that wait for a dead letter do not count for the oldest message.
local function lines_of(parked, permits)
  local oldest, keys, waiting, since, is_held = '', 0, 0, '', {}
  local function earlier(known, ms)
    return ms and (known == '' or number_of(ms) < number_of(known)) and ms or known
  end
  local tokens = redis.pcall('zrange', permits, 0, MOST_TOKENS - 1, 'withscores')
  for at = 1, #tokens, 2 do
    local buried_ms = string.match(tokens[at], '^d%-(%d+)%-')
    local parked_here = buried_ms and redis.call('zcount', parked, tokens[at + 1], tokens[at + 1]) or 0
    if parked_here > 0 then
      keys, waiting, since, is_held[tokens[at + 1]] = keys + 1, waiting + parked_here, earlier(since, buried_ms), true
    end
  end
  local first, looked = redis.call('zrangebyscore', parked, 0, '+inf', 'withscores', 'limit', 0, 1), 0
  while first[1] and looked < MOST_LINES do
    if not is_held[first[2]] then
      oldest = earlier(oldest, string.match(first[1], '^p:%d+%.(%d+)$'))
    end
    first = redis.call('zrangebyscore', parked, '(' .. first[2], '+inf', 'withscores', 'limit', 0, 1)
    looked = looked + 1
  end
  return { oldest, keys, waiting, since }
end

return {
  now_ms(),
  deliverable,
  pending,
  redis.call('zcard', KEYS[4]),
  redis.call('zcard', KEYS[5]),
  redis.call('zcard', KEYS[11]),
  redis.call('xlen', KEYS[6]),
  oldest,
  redis.call('zrange', KEYS[4], 0, 0, 'withscores')[2] or '',
  redis.call('hget', KEYS[7], 'paused') == '1' and 'PAUSED' or 'OPEN',
  redis.call('hgetall', KEYS[8]),
  counters(KEYS[9], 3, 2 + ARGV[2]),
  counters(KEYS[10], 3 + ARGV[2], #ARGV),
  redis.call('hmget', KEYS[7], 'paused-by', 'paused-reason', 'paused-at', 'paused-name', 'limits'),
  jobs.err and {} or jobs,
  redis.call('exists', KEYS[11]) == 1 and lines_of(KEYS[11], KEYS[13]) or {},
  redis.call('exists', KEYS[14]),
  holds.err and {} or holds,
}
