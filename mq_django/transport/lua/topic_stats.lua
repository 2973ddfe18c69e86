-- Read the state of a log, its groups and its counters. Changes nothing.
--
-- KEYS[1]  log        {topic}:log                       STREAM
-- KEYS[2]  this hour  {topic}:counters:m:<hour>         HASH
-- KEYS[3]  last hour  {topic}:counters:m:<hour - 1>     HASH
-- KEYS[4]  and on     {topic}:g:<group>:control         HASH     log-generation, alarm, lost
-- ARGV[1]  n          fields of `this hour`
-- ARGV[2]  m          fields of `last hour`
-- then these, and then the groups of KEYS[4] and on
--
-- Returns {now in ms, length, first entry, last entry, last generated, last deleted or '', bytes of memory, the
-- counters' values, twice, then for each group that exists {name, last delivered, pending, oldest pending or '', lag or
-- -1, first undelivered or '', log-generation, alarm, lost}}.

local log, n, m = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

-- with clock
-- with stream_state
-- with readable
local is_there = redis.call('exists', log) == 1
local info = is_there and pairs_of(redis.call('xinfo', 'stream', log)) or {}
local size = is_there and redis.call('memory', 'usage', log) or 0
local reply = {
  now_ms(),
  info.length or 0,
  info['first-entry'] and info['first-entry'][1] or '0-0',
  info['last-entry'] and info['last-entry'][1] or '0-0',
  info['last-generated-id'] or '0-0',
  info['max-deleted-entry-id'] or '',
  size,
  counters(KEYS[2], 3, 2 + n),
  counters(KEYS[3], 3 + n, 2 + n + m),
}
local controls = {}
for at = 3 + n + m, #ARGV do
  controls[ARGV[at]] = KEYS[at - n - m + 1]
end
for _, group in ipairs(groups_of(log)) do
  if controls[group.name] then
    local at = group['last-delivered-id']
    -- Fails after the largest id: then no entry follows.
    local first = redis.pcall('xrange', log, '(' .. at, '+', 'count', 1)[1]
    local oldest = group.pending > 0 and redis.call('xpending', log, group.name)[2] or ''
    local where = { group.name, at, group.pending, oldest, group.lag or -1, first and first[1] or '' }
    local noted = redis.call('hmget', controls[group.name], 'log-generation', 'alarm', 'lost')
    reply[#reply + 1] = { where[1], where[2], where[3], where[4], where[5], where[6], unpack(noted) }
  end
end
return reply
