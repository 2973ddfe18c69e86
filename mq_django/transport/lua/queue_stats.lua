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
-- ARGV[1]  group
-- ARGV[2]  n          fields of `this hour`
-- then these, and then the fields of `last hour`
--
-- Returns {now in ms, ready and pending together, pending, delayed, unhandled, parked, dead, id of the oldest
-- ready entry or '', first due time or '', 'PAUSED' or 'OPEN', consumers as flat fields and values, the counters'
-- values, twice, {who paused it, why, when in ms}, the fields and values of its jobs}.

-- with clock
-- with stream_state
local jobs = redis.pcall('hgetall', KEYS[12])
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

local function counters(key, first, last)
  return first > last and {} or redis.call('hmget', key, unpack(ARGV, first, last))
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
  redis.call('hmget', KEYS[7], 'paused-by', 'paused-reason', 'paused-at'),
  jobs.err and {} or jobs,
}
