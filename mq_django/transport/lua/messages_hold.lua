-- Turn messages of a queue that nobody holds into dead letters, from which they are moved to another queue. A process
-- that is killed meanwhile leaves a dead letter, and never a message in two queues.
--
-- KEYS     as named: as for messages_delete, without notes where it is not RSMQ's format, and
--   dead, dead-ids, dead-groups             see parts/dead_letters
-- ARGV[1..5]  see parts/jobs
-- ARGV[6]     names  of the keys, separated by spaces
-- ARGV[7]     group
-- then for each message, at most 100: its member, entry or id; its body as it was read, '' in a stream; the number of fields
-- and values of its dead letter, and these
--
-- Returns for each: the entry of its dead letter; 'MISSING' when it was delivered, has changed or is no longer there;
-- 'ELSEWHERE' when it is in another state of a queue in RSMQ's format; or only 'STOPPED' when this worker does not run the
-- job. The entries are also noted for the job, so that another worker goes on with them.

-- with clock
-- with named
-- with jobs
-- with dead_letters
-- with removals
local at, now, body, letter, entry = keys_named(ARGV[6]), now_ms(), nil, nil, nil
check_keys(at, { jobs = 'hash', dead = 'stream', ['dead-ids'] = 'hash' })
if not at['dead-groups'] then
  refuse('no key has the name dead-groups')
end

local function bury(_, found)
  -- Another message may have replaced it under its unique key since it was read.
  if found and found ~= body then
    return 'MISSING'
  end
  entry = redis.call('xadd', at.dead, '*', unpack(letter))
  redis.call('hset', at['dead-ids'], letter[2], entry)
  count_dead(at['dead-groups'], at.dead, group_of(letter, 1, #letter), now)
end

local remove = removal_of(at, bury, ARGV[7], ARGV[5])
if not is_allowed(at.jobs, ARGV) then
  return 'STOPPED'
end
local reply, counted, held, i = {}, {}, {}, 8
while i <= #ARGV do
  local size = tonumber(ARGV[i + 2])
  body, letter = ARGV[i + 1], { unpack(ARGV, i + 3, i + 2 + size) }
  local word = remove(ARGV[i])
  if word then
    counted[#counted + 1] = word
  else
    held[#held + 1] = entry
  end
  reply[#reply + 1] = word or entry
  i = i + 3 + size
end
count_step(at.jobs, ARGV, counted, now)
if ARGV[1] ~= '' then
  redis.call('hset', at.jobs, ARGV[5] .. ':held', table.concat(held, ' '))
end
return reply
