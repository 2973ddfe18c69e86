-- Publish messages that are ready now.
--
-- KEYS[1]  ready    {queue}:ready              STREAM
-- KEYS[2]  minutes  {queue}:counters:m:<hour>  HASH    counters
-- KEYS[3]  hours    {queue}:counters:h:<day>   HASH    counters
-- KEYS[4]  front    {queue}:front              STREAM  this and the next only with a limit
-- KEYS[5]  waiting  {queue}:waiting            HASH
-- ARGV[1]  limit     messages the queue may hold; 0: no limit
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- then for each run of messages with the same fields: how many, the number of fields, their names, the second of
-- which is `type`, and for each message its values
--
-- Returns 'READY', or 'FULL': nothing is written.

-- with count
local call, argv, ready = redis.call, ARGV, KEYS[1]

local limit, n, at = tonumber(argv[1]), 0, 4
while limit > 0 and at <= #argv do
  n = n + argv[at]
  at = at + 2 + argv[at + 1] * (argv[at] + 1)
end
if limit > 0 and call('xlen', ready) + call('xlen', KEYS[4]) + call('hlen', KEYS[5]) + n > limit then
  return 'FULL'
end

local counts = {}
at = 4
while at <= #argv do
  local messages, width, entry = tonumber(argv[at]), tonumber(argv[at + 1]), {}
  for i = 1, width do
    entry[2 * i - 1] = argv[at + 1 + i]
  end
  at = at + 2 + width
  for _ = 1, messages do
    for i = 1, width do
      entry[2 * i] = argv[at + i - 1]
    end
    -- If `ready` is not a stream, the first XADD fails before anything is written.
    call('xadd', ready, '*', unpack(entry))
    local name = entry[4]
    counts[name] = (counts[name] or 0) + 1
    at = at + width
  end
end
count(KEYS[2], argv[2], KEYS[3], argv[3], 'published', counts)
return 'READY'
