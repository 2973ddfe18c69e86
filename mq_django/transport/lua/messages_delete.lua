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
-- with claims
-- with dead_letters
-- with rsmq
-- with step_notes
-- with tokens
-- with undelivered
-- with waiting_members
local at, group = keys_named(ARGV[6]), ARGV[7]
check_keys(at, { jobs = 'hash' })
if not at.zset then
  check_keys(at, { permits = 'zset', checks = 'zset' })
end

local function note_deleted(id)
  release_claim(at.claims, id)
  note_step(usable_notes(at.notes), id, 'failed', '', 'deleted')
end

-- Each checks its keys, and returns a function that deletes one: true, or a word if it cannot.
local kinds = {}

function kinds.waiters()
  check_keys(at, { waiters = 'zset', waiting = 'hash', unique = 'hash', claims = 'hash' })
  return function(member)
    if redis.call('zrem', at.waiters, member) == 0 then
      return 'MISSING'
    end
    local id = redis.call('hget', at.unique, member) or member
    redis.call('hdel', at.waiting, member)
    forget_member(at.unique, member, id)
    drop_token(at.permits, at.checks, 'm-' .. member)
    note_deleted(id)
    return 'DELETED'
  end
end

function kinds.stream()
  check_keys(at, { stream = 'stream', claims = 'hash' })
  local first = undelivered(at.stream, group, 1)[1]
  return function(entry)
    local found = redis.call('xrange', at.stream, entry, entry)[1]
    -- The range is empty when the entry is before the first undelivered one.
    if not found or not first or #redis.call('xrange', at.stream, first[1], entry, 'count', 1) == 0 then
      return 'MISSING'
    end
    redis.call('xdel', at.stream, entry)
    drop_token(at.permits, at.checks, token_of(at.stream, entry))
    for field = 1, #found[2], 2 do
      if found[2][field] == 'id' then
        note_deleted(found[2][field + 1])
      end
    end
    return 'DELETED'
  end
end

function kinds.dead()
  check_keys(at, { dead = 'stream', ['dead-ids'] = 'hash' })
  return function(entry)
    local found = redis.call('xrange', at.dead, entry, entry)[1]
    if not found then
      return 'MISSING'
    end
    remove_dead_letter(at.dead, at['dead-ids'], entry, found[2])
    drop_token(at.permits, at.checks, 'd-' .. entry)
    return 'DELETED'
  end
end

function kinds.zset()
  check_keys(at, { zset = 'zset', hash = 'hash', notes = 'hash', unhandled = 'zset', retried = 'zset' })
  return function(id)
    local score = redis.call('zscore', at.zset, id)
    if not score then
      return 'MISSING'
    end
    local is_ready = tonumber(score) <= now_ms()
    local state = is_ready and 'READY' or state_of(at.zset, at.hash, at.unhandled, at.retried, id)
    if not state or string.lower(state) ~= ARGV[5] then
      return 'ELSEWHERE'
    end
    remove_message(at.zset, at.hash, at.notes, id)
    redis.call('zrem', at.unhandled, id)
    redis.call('zrem', at.retried, id)
    return 'DELETED'
  end
end

local delete = kinds[at.waiters and 'waiters' or at.stream and 'stream' or at.dead and 'dead' or 'zset']()
if not is_allowed(at.jobs, ARGV) then
  return 'STOPPED'
end
local reply = {}
for i = 8, #ARGV do
  reply[#reply + 1] = delete(ARGV[i])
end
uncount_removed(at['dead-groups'])
count_step(at.jobs, ARGV, reply, now_ms())
return reply
