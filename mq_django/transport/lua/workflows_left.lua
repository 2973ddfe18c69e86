-- Return what nobody has done for runs of workflows for some time.
--
-- KEYS[1]  starts  {workflows.x}:starts   STREAM  what is to be published
-- KEYS[2]  alive   {workflows.x}:alive    ZSET    runs that have not ended; score: when they expire, ms
-- KEYS[3]  busy    {workflows.x}:busy     ZSET    runs with work left; score: when it was left, ms
-- KEYS[4]  index   {workflows.x}:index    ZSET    all runs
-- ARGV[1]  age     ms
-- ARGV[2]  after   the entry of a start: those that follow it are returned; '' for the oldest
-- ARGV[3]  the most starts, and the most runs of each kind
--
-- Returns the starts as XRANGE does, runs with work left, and runs that have expired; or nothing: there
-- are no runs.

-- with types
-- with clock
local starts, alive, busy, index = unpack(KEYS)

check_types({ [starts] = 'stream', [alive] = 'zset', [busy] = 'zset', [index] = 'zset' })

if redis.call('exists', alive, busy, index) == 0 and redis.call('xlen', starts) == 0 then
  return {}
end
local now = now_ms()
local old = string.format('%.0f', now - tonumber(ARGV[1]))
return {
  redis.call('xrange', starts, ARGV[2] == '' and '-' or '(' .. ARGV[2], old, 'count', ARGV[3]),
  redis.call('zrangebyscore', busy, '-inf', old, 'limit', 0, ARGV[3]),
  redis.call('zrangebyscore', alive, '-inf', string.format('%.0f', now), 'limit', 0, ARGV[3]),
}
