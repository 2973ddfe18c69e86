-- Put messages into a queue, now.
--
-- KEYS[1]  ready     {queue}:ready               STREAM
-- KEYS[2]  urgent    {queue}:urgent              STREAM
-- KEYS[3]  waiting   {queue}:waiting             HASH
-- KEYS[4]  minutes   {queue}:counters:m:<hour>   HASH    counters
-- KEYS[5]  hours     {queue}:counters:h:<day>    HASH    counters
-- ARGV[1]  limit     messages the queue may hold, or 0
-- ARGV[2]  minute    slot of the counters in `minutes`
-- ARGV[3]  hour      slot of the counters in `hours`
-- then for each run of messages with the same fields: how many, the number of fields, their names, the second of
-- which is `type`, and for each message its values
--
-- Returns 'READY', or 'FULL', and then nothing was written.

-- with types
-- with counts
local ready, urgent, waiting, minutes, hours = unpack(KEYS)

local wrong = wrong_type({ [minutes] = 'hash', [hours] = 'hash' })
if wrong then
  return wrong
end
local limit, n, at = tonumber(ARGV[1]), 0, 4
while limit > 0 and at <= #ARGV do
  n = n + ARGV[at]
  at = at + 2 + ARGV[at + 1] * (ARGV[at] + 1)
end
if limit > 0 and redis.call('xlen', ready) + redis.call('xlen', urgent) + redis.call('hlen', waiting) + n > limit then
  return 'FULL'
end

local counts = {}
at = 4
while at <= #ARGV do
  local messages, width, entry = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), {}
  for i = 1, width do
    entry[2 * i - 1] = ARGV[at + 1 + i]
  end
  at = at + 2 + width
  for _ = 1, messages do
    for i = 1, width do
      entry[2 * i] = ARGV[at + i - 1]
    end
    redis.call('xadd', ready, '*', unpack(entry))
    counts[entry[4]] = (counts[entry[4]] or 0) + 1
    at = at + width
  end
end
count_published(minutes, ARGV[2], hours, ARGV[3], counts)
return 'READY'
