-- Delete ready and waiting messages, but no pending deliveries and no dead letters.
--
-- KEYS[1]  ready      {queue}:ready       STREAM
-- KEYS[2]  urgent     {queue}:urgent      STREAM
-- KEYS[3]  due        {queue}:due         ZSET
-- KEYS[4]  priority   {queue}:priority    ZSET
-- KEYS[5]  unhandled  {queue}:unhandled   ZSET
-- KEYS[6]  parked     {queue}:lines       ZSET
-- KEYS[7]  waiting    {queue}:waiting     HASH   member -> body
-- KEYS[8]  unique     {queue}:unique      HASH   unique member -> id, and id -> member
-- KEYS[9]  claims     {queue}:claims      HASH   claims of unique keys
-- KEYS[10] notes      {queue}:step-notes  HASH   see parts/step_notes
-- KEYS[11] permits    {queue}:permits     ZSET   see parts/tokens
-- KEYS[12] checks     {queue}:checks      ZSET
-- ARGV[1]  group
-- ARGV[2]  limit      messages of each key, at most 500
-- ARGV[3]  place      'ready', 'delayed', 'unhandled' or 'parked'; '' for all of them
-- ARGV[4]  wants ids  if given, the reply is the ids of the deleted messages
--
-- Returns the number of deleted messages, or their ids; if there are any, more may be left.

-- with types
-- with claims
-- with step_notes
-- with tokens
-- with undelivered
local waiting, unique, claims, notes = KEYS[7], KEYS[8], KEYS[9], usable_notes(KEYS[10])
local permits, checks = KEYS[11], KEYS[12]

local wrong = wrong_type({ [KEYS[3]] = 'zset', [KEYS[4]] = 'zset', [KEYS[5]] = 'zset', [KEYS[6]] = 'zset' })
  or wrong_type({ [KEYS[1]] = 'stream', [KEYS[2]] = 'stream' })
  or wrong_type({ [permits] = 'zset', [checks] = 'zset' })
  or wrong_type({ [waiting] = 'hash', [unique] = 'hash', [claims] = 'hash' })
if wrong then
  return wrong
end

-- By the index of their key.
local places = { 'ready', 'ready', 'delayed', 'ready', 'unhandled', 'parked' }

local function is_selected(at)
  return ARGV[3] == '' or ARGV[3] == places[at]
end

local deleted, ids, wants_ids, claimed = 0, {}, ARGV[4], redis.call('exists', claims) == 1
for at = 1, 2 do
  for _, entry in ipairs(is_selected(at) and undelivered(KEYS[at], ARGV[1], ARGV[2]) or {}) do
    redis.call('xdel', KEYS[at], entry[1])
    drop_token(permits, checks, token_of(KEYS[at], entry[1]))
    -- Other programs may leave out the id.
    local id = entry[1]
    for field = 1, #entry[2], 2 do
      if entry[2][field] == 'id' then
        id = entry[2][field + 1]
      end
    end
    if claimed then
      release_claim(claims, id)
    end
    note_step(notes, id, 'failed', '', 'deleted')
    ids[#ids + 1] = id
    deleted = deleted + 1
  end
end
for at = 3, 6 do
  for _, member in ipairs(is_selected(at) and redis.call('zrange', KEYS[at], 0, ARGV[2] - 1) or {}) do
    local id = redis.call('hget', unique, member)
    redis.call('zrem', KEYS[at], member)
    redis.call('hdel', waiting, member)
    redis.call('hdel', unique, member, id or member)
    drop_token(permits, checks, 'm-' .. member)
    release_claim(claims, id or member)
    note_step(notes, id or member, 'failed', '', 'deleted')
    ids[#ids + 1] = id or member
    deleted = deleted + 1
  end
end
return wants_ids and ids or deleted
