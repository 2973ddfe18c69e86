-- Delete dead letters.
--
-- KEYS[1]  dead      {queue}:dead         STREAM
-- KEYS[2]  dead ids  {queue}:dead-ids     HASH    message id -> entry of `dead`
-- KEYS[3]  groups    {queue}:dead-groups  HASH    see parts/dead_groups
-- KEYS[4]  jobs      {queue}:jobs         HASH    see parts/jobs
-- KEYS[5]  permits   {queue}:permits      ZSET    see parts/tokens
-- KEYS[6]  checks    {queue}:next-checks  ZSET
-- ARGV[1..5]          see parts/jobs
-- then entries of `dead`, at most 500
--
-- Returns for each: 'DELETED', or 'MISSING' when it no longer exists; or 'STOPPED' when this worker does not run the
-- job.

-- with types
-- with clock
-- with dead_letters
-- with jobs
-- with tokens
local dead, ids, groups, jobs, permits, checks = unpack(KEYS)
check_types({ [dead] = 'stream', [ids] = 'hash', [jobs] = 'hash' })
check_types({ [permits] = 'zset', [checks] = 'zset' })
if not is_allowed(jobs, ARGV) then
  return 'STOPPED'
end

local reply = {}
for i = 6, #ARGV do
  local found = redis.call('xrange', dead, ARGV[i], ARGV[i])[1]
  reply[#reply + 1] = found and 'DELETED' or 'MISSING'
  if found then
    remove_dead_letter(dead, ids, ARGV[i], found[2])
    drop_token(permits, checks, 'd-' .. ARGV[i])
  end
end
uncount_removed(groups)
count_step(jobs, ARGV, reply, now_ms())
return reply
