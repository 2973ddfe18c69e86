-- Publish messages to a topic.
--
-- KEYS[1]  log        {topic}:log                 STREAM
-- KEYS[2]  published  {topic}:published           ZSET    id -> when it was published, ms
-- KEYS[3]  minutes    {topic}:counters:m:<hour>   HASH    counters
-- KEYS[4]  hours      {topic}:counters:h:<day>    HASH    counters
-- ARGV[1]  minute     slot of the counters in `minutes`
-- ARGV[2]  hour       slot of the counters in `hours`
-- ARGV[3]  window     ms for which an id is remembered
-- ARGV[4]  n          messages
-- then for each message: the id to remember or '', its name, the number of its fields and values, and these
--
-- Returns for each message the entry's id, or 'DUPLICATE' when its id was published within the window.

local log, published, minutes, hours = unpack(KEYS)
-- with types
check_types({ [published] = 'zset' })

-- with clock
local now = now_ms()
local n, oldest = tonumber(ARGV[4]), now - ARGV[3]
local ids, counts, at, remembers = {}, {}, 5, false
for i = 1, n do
  local id, name, fields = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local before = id ~= '' and redis.call('zscore', published, id)
  if before and tonumber(before) > oldest then
    ids[i] = 'DUPLICATE'
  else
    ids[i] = redis.call('xadd', log, '*', unpack(ARGV, at + 3, at + 2 + fields))
    counts[name] = (counts[name] or 0) + 1
    if id ~= '' then
      remembers = true
      redis.call('zadd', published, string.format('%.0f', now), id)
    end
  end
  at = at + 3 + fields
end
if remembers then
  -- Removes up to twice as many as were added, so that the set shrinks after a burst.
  local old = redis.call('zrangebyscore', published, '-inf', string.format('%.0f', oldest), 'limit', 0, 2 * n)
  if #old > 0 then
    redis.call('zrem', published, unpack(old))
  end
  redis.call('pexpire', published, ARGV[3])
end
-- with count
count(minutes, ARGV[1], hours, ARGV[2], 'published', counts)
return ids
