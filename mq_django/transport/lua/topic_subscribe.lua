-- Create a group of a topic, if it does not exist.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  ready    {topic}:g:<group>:ready     STREAM
-- KEYS[3]  control  {topic}:g:<group>:control   HASH    log-generation
-- KEYS[4]  topic    {topic}:control             HASH    born: when its log was created, ms, and a token
-- ARGV[1]  group
-- ARGV[2]  start    '0', '$' for the end, or the entry after which the group starts
-- ARGV[3]  born     `born` from an earlier reply, or ''
-- ARGV[4]  token    distinguishes logs that were created in the same millisecond
--
-- Returns {'CREATED', 'LOST' or 'EXISTS', born}. 'LOST': the group or the log that the caller knew has gone. The group
-- then starts at the beginning, so that no message published since is skipped.

local log, ready, control, topic = unpack(KEYS)
-- with types
check_types({ [ready] = 'stream', [control] = 'hash', [topic] = 'hash' })

-- with clock
-- with stream_state
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', topic, '')
local now = string.format('%.0f', now_ms())
redis.call('hsetnx', topic, 'born', now .. '-' .. ARGV[4])
local born, start, word = redis.call('hget', topic, 'born'), ARGV[2], 'CREATED'
local was_there = number_of(redis.call('hget', control, 'log-generation')) > 0
if was_there or (ARGV[3] ~= '' and ARGV[3] ~= born) then
  start, word = '0', 'LOST'
elseif start == '$' then
  -- As an id: a copy of this command on a replica, or in a file, means the same entry.
  start = redis.call('exists', log) == 1 and pairs_of(redis.call('xinfo', 'stream', log))['last-generated-id'] or '0'
end

local made = redis.pcall('xgroup', 'create', log, ARGV[1], start, 'mkstream')
if made.err and not string.find(made.err, 'BUSYGROUP') then
  return made
end
local own = redis.pcall('xgroup', 'create', ready, ARGV[1], '0', 'mkstream')
if own.err and not string.find(own.err, 'BUSYGROUP') then
  return own
end
if made.err then
  return { 'EXISTS', born }
end
redis.call('hset', control, 'log-generation', next_generation(control, tonumber(now)))
return { word, born }
