-- Delete ready messages of a stream for a background job, but no pending deliveries.
--
-- KEYS[1]  stream     {queue}:ready or :front   STREAM
-- KEYS[2]  claims   {queue}:claims       HASH  claims of unique keys
-- KEYS[3]  jobs     {queue}:jobs         HASH  see parts/jobs
-- KEYS[4]  notes    {queue}:step-notes   HASH  see parts/step_notes
-- KEYS[5]  permits  {queue}:permits      ZSET  see parts/tokens
-- KEYS[6]  checks   {queue}:next-checks  ZSET
-- ARGV[1..5]          see parts/jobs
-- ARGV[6]  group
-- then entries
--
-- Returns for each: 'DELETED', or 'MISSING' when it was delivered or is no longer there; or 'STOPPED' when this worker
-- does not run the job.

-- with types
-- with clock
-- with claims
-- with undelivered
-- with jobs
-- with step_notes
-- with tokens
local stream, claims, jobs, notes, permits, checks = unpack(KEYS)
check_types({ [stream] = 'stream', [claims] = 'hash', [jobs] = 'hash' })
check_types({ [permits] = 'zset', [checks] = 'zset' })
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

local first = undelivered(stream, ARGV[6], 1)[1]

local function delete(entry)
  local found = redis.call('xrange', stream, entry, entry)[1]
  -- The range is empty when the entry is before the first undelivered one.
  if not found or not first or #redis.call('xrange', stream, first[1], entry, 'count', 1) == 0 then
    return 'MISSING'
  end
  redis.call('xdel', stream, entry)
  drop_token(permits, checks, token_of(stream, entry))
  for field = 1, #found[2], 2 do
    if found[2][field] == 'id' then
      release_claim(claims, found[2][field + 1])
      note_step(notes, found[2][field + 1], 'failed', '', 'deleted')
    end
  end
  return 'DELETED'
end

notes = usable_notes(notes)
local reply = {}
for at = 7, #ARGV do
  reply[#reply + 1] = delete(ARGV[at])
end
count_step(jobs, ARGV, reply, now_ms())
return reply
