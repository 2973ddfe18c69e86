-- Read the names of the groups of a log. Changes nothing.
--
-- XINFO GROUPS has twelve values for each, which take a program longer to read than Redis to find.
--
-- KEYS[1]  log   {topic}:log  STREAM
-- ARGV[1]  most  groups; with more of them it is an error. 0: any number
--
-- Returns the names.

-- with stream_state
local log, most, names = KEYS[1], tonumber(ARGV[1]), {}
local count = redis.call('exists', log) == 1 and pairs_of(redis.call('xinfo', 'stream', log)).groups or 0
if most > 0 and count > most then
  return redis.error_reply(string.format('ERR the log %s has %d groups, and at most %d are read', log, count, most))
end
for at, group in ipairs(groups_of(log)) do
  names[at] = group.name
end
return names
