-- Put a dead letter back into its queue with other data, as a new message.
--
-- KEYS[1]  dead      {queue}:dead         STREAM
-- KEYS[2]  dead ids  {queue}:dead-ids     HASH    message id -> entry of `dead`
-- KEYS[3]  groups    {queue}:dead-groups  HASH    see parts/dead_letters
-- KEYS[4]  ready     {queue}:ready        STREAM
-- KEYS[5]  notes     {queue}:step-notes   HASH    see parts/step_notes
-- KEYS[6]  permits   {queue}:permits      ZSET    see parts/tokens
-- KEYS[7]  front     {queue}:front        STREAM
-- ARGV[1]  entry      of `dead`
-- ARGV[2]  id         of the new message
-- ARGV[3]  data       JSON text
-- ARGV[4]  group
--
-- Returns 'RESUBMITTED', 'MISSING' when it no longer exists, or 'UNDECODABLE' when it is not a valid message.

-- with types
-- with dead_letters
-- with step_notes
-- with line_heads
local dead, ids, groups, ready, notes, permits, front = unpack(KEYS)
check_types({ [dead] = 'stream', [ids] = 'hash', [ready] = 'stream' })
check_types({ [permits] = 'zset', [front] = 'stream' })

local found = redis.call('xrange', dead, ARGV[1], ARGV[1])[1]
if not found then
  return 'MISSING'
end
-- The new message starts over: without attempts, expiry and history, and without the fields that belong to the old id.
local dropped = { attempt = 1, expires = 1, id = 1, time = 1, claim = 1, data = 1, message = 1, story = 1 }
local fields = message_fields(found[2], dropped)
if not fields then
  return 'UNDECODABLE'
end
fields[#fields + 1] = 'data'
fields[#fields + 1] = ARGV[3]
fields = { 'id', ARGV[2], unpack(fields) }
if redis.call('zscore', permits, 'd-' .. ARGV[1]) then
  -- The head of a key keeps its place.
  local target, added = add_first(ready, front, ARGV[4], fields)
  if not target then
    return added
  end
  pass_token(permits, 'd-' .. ARGV[1], token_of(target, added))
else
  redis.call('xadd', ready, '*', unpack(fields))
end
remove_dead_letter(dead, ids, ARGV[1], found[2])
note_step(usable_notes(notes), ARGV[2], 'redriven', '', '')
uncount_removed(groups)
return 'RESUBMITTED'
