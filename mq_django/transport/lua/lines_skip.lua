-- Let the next message of a key run although its head waits: for another attempt, for a handler, or as a dead letter. The
-- token of the head is dropped. Its message stays where it is, and no longer has its place in the order of its key.
--
-- KEYS[1]  permits  {queue}:permits      ZSET  see parts/tokens
-- KEYS[2]  checks   {queue}:next-checks  ZSET  hashes of keys by the time at which their line is looked at, ms
-- ARGV[1]  hash       of the key
-- ARGV[2]  token      the one that is to be dropped
--
-- Returns 'SKIPPED'; 'CHANGED' if the key has no such token; or 'RUNS' if its message runs, or is about to.

-- with types
-- with tokens
local permits, checks = unpack(KEYS)
check_types({ [permits] = 'zset', [checks] = 'zset' })

local token, score = ARGV[2], redis.call('zscore', permits, ARGV[2])
if not score or tonumber(score) ~= tonumber(ARGV[1]) then
  return 'CHANGED'
end
local kind = string.sub(token, 1, 2)
if kind ~= 'm-' and kind ~= 'd-' then
  return 'RUNS'
end
-- A write that Redis allows when memory is out. The one after it is then allowed, too: the queue can be emptied.
redis.call('zrem', permits, '')
drop_token(permits, checks, token)
return 'SKIPPED'
