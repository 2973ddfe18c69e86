-- Delete messages of a queue that nobody holds, for a background job or for a caller.
--
-- KEYS     as named
--   jobs                                    {queue}:jobs        HASH   see parts/jobs
--   permits, checks                         {queue}:permits and :next-checks   see parts/tokens; not in RSMQ's format
--   claims, notes                           {queue}:claims and :step-notes     HASH   of ready and waiting messages
--   waiters, waiting, unique                a ZSET of members, {queue}:waiting and :unique: of waiting messages
--   stream                                  {queue}:ready or :front            STREAM  of ready messages
--   dead, dead-ids, dead-groups             of dead letters: see parts/dead_letters
--   zset, hash, notes, unhandled, retried   of messages in RSMQ's format that no program may have received
-- ARGV[1..5]  see parts/jobs
-- ARGV[6]     names  of the keys, separated by spaces
-- ARGV[7]     group
-- then members, entries or ids, at most 500
--
-- Returns for each: 'DELETED'; 'MISSING' when it was delivered or is no longer there; 'ELSEWHERE' when it is in another
-- state of a queue in RSMQ's format; or only 'STOPPED' when this worker does not run the job.

-- with clock
-- with named
-- with jobs
-- with dead_letters
-- with removals
-- with step_notes
-- with tokens
local at = keys_named(ARGV[6])
check_keys(at, { jobs = 'hash' })

-- A dead letter is in no other list.
local function dead_letters()
  check_keys(at, { dead = 'stream', ['dead-ids'] = 'hash' })
  if not at.zset then
    check_keys(at, { permits = 'zset', checks = 'zset' })
  end
  return function(entry)
    local found = redis.call('xrange', at.dead, entry, entry)[1]
    if not found then
      return 'MISSING'
    end
    remove_dead_letter(at.dead, at['dead-ids'], entry, found[2])
    drop_token(at.permits, at.checks, 'd-' .. entry)
  end
end

local function note_deleted(id)
  if not at.zset then
    note_step(usable(at.notes, 'hash'), id, 'failed', '', 'deleted')
  end
end

local remove = at.dead and dead_letters() or removal_of(at, note_deleted, ARGV[7], ARGV[5])
if not is_allowed(at.jobs, ARGV) then
  return 'STOPPED'
end
local reply = {}
for i = 8, #ARGV do
  reply[#reply + 1] = remove(ARGV[i]) or 'DELETED'
end
uncount_removed(at['dead-groups'])
count_step(at.jobs, ARGV, reply, now_ms())
return reply
