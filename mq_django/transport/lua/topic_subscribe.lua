-- Create a group of a topic, if it does not exist.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  ready    {topic}:g:<group>:ready     STREAM
-- KEYS[3]  control  {topic}:g:<group>:control   HASH    log-generation; position: see parts/group_position; damage
-- KEYS[4]  topic    {topic}:control             HASH    born: when its log was created, ms, and a token
-- ARGV[1]  group
-- ARGV[2]  start    '0', '$' for the end, or the entry after which the group starts
-- ARGV[3]  born     `born` from an earlier reply, or ''
-- ARGV[4]  token    distinguishes logs that were created in the same millisecond
--
-- Returns {'CREATED', 'LOST' or 'EXISTS', born}. 'LOST': the log that the caller knew was deleted with all its groups.
-- The group then starts at the beginning, so that no message published since is skipped. Or {'RESTORED', born, start}:
-- another program removed the group. It continues at its position of the last check.

local log, ready, control, topic = unpack(KEYS)
-- with types
local wrong = wrong_type({ [ready] = 'stream', [control] = 'hash', [topic] = 'hash' })
if wrong then
  return wrong
end

-- with clock
-- with generations
-- with group_position
-- with stream_state
-- A write that Redis allows when memory is out. The writes after it are then allowed, too: a full Redis can be emptied.
redis.call('hdel', topic, '')
local now = string.format('%.0f', now_ms())
redis.call('hsetnx', topic, 'born', now .. '-' .. ARGV[4])
local born, start, word = redis.call('hget', topic, 'born'), ARGV[2], 'CREATED'
if ARGV[3] ~= '' and ARGV[3] ~= born then
  start, word = '0', 'LOST'
end
local state = stream_state(log, ARGV[1])
local last, position, entries_read = state and state['last-generated-id'] or '0-0', position_of(control), {}
if position and word == 'CREATED' then
  -- If the log was deleted, its new entries may have lower ids.
  start, word = sortable(position.after) <= sortable(last) and position.after or '0', 'RESTORED'
  if start ~= '0' and position.read then
    local between, is_exact = entries_between(log, state, start, position.delivered)
    -- So Redis goes on to count, and the next check notices what is missing.
    entries_read = is_exact and { 'entriesread', position.read - between } or {}
  end
elseif start == '$' then
  start = state and last or '0'
end

local made = redis.pcall('xgroup', 'create', log, ARGV[1], start, 'mkstream', unpack(entries_read))
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
local generation = next_generation(control, tonumber(now))
redis.call('hset', control, 'log-generation', generation)
if word ~= 'RESTORED' then
  return { word, born }
end
local damage = now .. ' DESTROYED 0'
redis.call('hset', control, 'position', position_text(generation, position.after), 'damage', damage)
return { word, born, start }
