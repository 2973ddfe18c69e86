-- Remove a waiting message.
--
-- KEYS[1]   due        {queue}:due          ZSET
-- KEYS[2]   unhandled  {queue}:unhandled    ZSET
-- KEYS[3]   priority   {queue}:priority     ZSET
-- KEYS[4]   parked     {queue}:parked       ZSET
-- KEYS[5]   waiting    {queue}:waiting      HASH  member -> body
-- KEYS[6]   unique     {queue}:unique       HASH  unique member -> id, and id -> member
-- KEYS[7]   claims     {queue}:claims       HASH  claims of unique keys
-- KEYS[8]   replaced   {queue}:replaced     ZSET  ids of replaced messages; score: when, ms
-- KEYS[9]   notes      {queue}:step-notes   HASH  see parts/step_notes
-- KEYS[10]  permits    {queue}:permits      ZSET  see parts/tokens; optional, with the next
-- KEYS[11]  checks     {queue}:next-checks  ZSET
-- ARGV[1]  id         the message's id, or 'u:' and its unique key
-- ARGV[2]  wants id   if given, the reply for a cancelled message is its id in a list
--
-- Returns 'CANCELLED' or {id}, 'REPLACED', or 'MISSING' when it does not wait: it is ready already, or does not exist.

-- with types
-- with clock
-- with waiting_members
-- with claims
-- with step_notes
-- with tokens
local due, unhandled, priority, parked, waiting, unique, claims, replaced, notes = unpack(KEYS, 1, 9)
local permits, checks = KEYS[10], KEYS[11]

check_types({ [due] = 'zset', [unhandled] = 'zset', [priority] = 'zset', [parked] = 'zset' })
check_types({ [waiting] = 'hash', [unique] = 'hash', [claims] = 'hash', [replaced] = 'zset' })
if permits then
  check_types({ [permits] = 'zset', [checks] = 'zset' })
end

local member, removed = member_of(unique, claims, ARGV[1]), 0
for at = 1, 4 do
  removed = removed + redis.call('zrem', KEYS[at], member)
end
if removed == 0 then
  return was_replaced(replaced, ARGV[1]) and 'REPLACED' or 'MISSING'
end
if permits then
  drop_token(permits, checks, 'm-' .. member)
end
local id = string.match(member, '^[up]:') and redis.call('hget', unique, member) or member
redis.call('hdel', waiting, member)
forget_member(unique, member, id)
release_claim(claims, id)
note_step(usable(notes, 'hash'), id, 'failed', '', 'cancelled')
return ARGV[2] and { id } or 'CANCELLED'
