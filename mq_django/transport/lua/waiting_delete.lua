-- Delete waiting messages for a background job.
--
-- KEYS[1]  waiters  {queue}:due, :unhandled, :parked or :priority  ZSET
-- KEYS[2]  waiting  {queue}:waiting                                HASH  member -> body
-- KEYS[3]  unique   {queue}:unique                                 HASH  unique member -> id, and id -> member
-- KEYS[4]  claims   {queue}:claims                                 HASH  claims of unique keys
-- KEYS[5]  jobs     {queue}:jobs                                   HASH  see parts/jobs
-- KEYS[6]  notes    {queue}:step-notes                             HASH  see parts/step_notes
-- KEYS[7]  permits  {queue}:permits                                ZSET  see parts/tokens
-- KEYS[8]  checks   {queue}:next-checks                            ZSET
-- ARGV[1..5]          see parts/jobs
-- then members
--
-- Returns for each: 'DELETED', or 'MISSING' when it is no longer there; or 'STOPPED' when this worker does not run the
-- job.

-- with types
-- with clock
-- with claims
-- with forget_member
-- with jobs
-- with step_notes
-- with tokens
local waiters, waiting, unique, claims, jobs, notes, permits, checks = unpack(KEYS)
check_types({ [waiters] = 'zset', [waiting] = 'hash', [unique] = 'hash', [claims] = 'hash', [jobs] = 'hash' })
check_types({ [permits] = 'zset', [checks] = 'zset' })
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

notes = usable_notes(notes)
local reply = {}
for at = 6, #ARGV do
  local member = ARGV[at]
  local removed = redis.call('zrem', waiters, member) == 1
  if removed then
    local id = redis.call('hget', unique, member) or member
    redis.call('hdel', waiting, member)
    forget_member(unique, member, id)
    release_claim(claims, id)
    drop_token(permits, checks, 'm-' .. member)
    note_step(notes, id, 'failed', '', 'deleted')
  end
  reply[#reply + 1] = removed and 'DELETED' or 'MISSING'
end
count_step(jobs, ARGV, reply, now_ms())
return reply
