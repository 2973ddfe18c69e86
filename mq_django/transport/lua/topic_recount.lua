-- Let Redis count again what the groups of a topic have read, after a restart or a failover. It writes reads to its file,
-- and sends them to its replicas, without this count, so it is then that of an earlier time. Without a count, Redis counts
-- again when a group has read to the end of the log.
--
-- KEYS[1]  log      {topic}:log       STREAM
-- KEYS[2]  control  {topic}:control   HASH     counted-by: the run id of the server that has counted
--
-- Returns the number of groups.

-- with types
-- with stream_state
check_types({ [KEYS[2]] = 'hash' })
-- Fails if the user may not.
local info = redis.pcall('info', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
local counted_by = redis.call('hget', KEYS[2], 'counted-by')
if not server or counted_by == server then
  return 0
end
local groups = counted_by and groups_of(KEYS[1]) or {}
-- A write that Redis allows when memory is out. The writes after it are then allowed, too.
redis.call('hdel', KEYS[2], '')
for _, group in ipairs(groups) do
  redis.call('xgroup', 'setid', KEYS[1], group.name, group['last-delivered-id'])
end
redis.call('hset', KEYS[2], 'counted-by', server)
return #groups
