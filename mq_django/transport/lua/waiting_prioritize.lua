-- Publish messages that are ready now, some of them with a priority.
--
-- KEYS[1]  ready     {queue}:ready              STREAM
-- KEYS[2]  front     {queue}:front              STREAM
-- KEYS[3]  priority  {queue}:priority           ZSET    score: see parts/ranks
-- KEYS[4]  waiting   {queue}:waiting            HASH    member -> body
-- KEYS[5]  control   {queue}:control            HASH
-- KEYS[6]  minutes   {queue}:counters:m:<hour>  HASH    counters
-- KEYS[7]  hours     {queue}:counters:h:<day>   HASH    counters
-- ARGV[1]  limit     messages the queue may hold; 0: no limit
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- ARGV[4]  group
-- then for each message: its name, id, body
-- and one more, if the queue has ageing: ms, see parts/ranks
--
-- Returns 'READY', or 'FULL': nothing is written.

-- with types
-- with count
-- with ready
local ready, front, priority, waiting, control, minutes, hours = unpack(KEYS)
local limit, n = tonumber(ARGV[1]), math.floor((#ARGV - 4) / 3)
local ageing = #ARGV % 3 == 2 and table.remove(ARGV) or nil

check_types({ [ready] = 'stream', [priority] = 'zset', [waiting] = 'hash', [control] = 'hash' })
if limit > 0 and redis.call('xlen', ready) + redis.call('xlen', front) + redis.call('hlen', waiting) + n > limit then
  return 'FULL'
end

local make_ready, counts = make_ready_with(ready, priority, waiting, control, ARGV[4], ageing), {}
for at = 5, #ARGV, 3 do
  local failed = make_ready(ARGV[at + 1], ARGV[at + 2])
  if failed then
    return failed
  end
  counts[ARGV[at]] = (counts[ARGV[at]] or 0) + 1
end
count(minutes, ARGV[2], hours, ARGV[3], 'published', counts)
return 'READY'
