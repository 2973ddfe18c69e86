-- Settle deliveries with one kind of outcome, and write all that belongs to it: results, history, counters, claims, notes.
--
-- KEYS     as named; after these the keys of results, and {queue}:waiters, which may be missing
--   stream                           {queue}:ready or :front            STREAM   of a queue
--   permits, parked, next-checks, control  {queue}:permits, …                  see parts/tokens; of a queue with lines
--   log, control                     {topic}:log, {topic}:g:<group>:control   STREAM, HASH   of a topic's group
--   zset, hash, owners, notes        {namespace}:<queue>, …:Q, …:mq:owners, …:mq:notes   of a queue in RSMQ's format
--   due, waiting, unhandled, ready, front, dead, dead-ids, dead-groups, cancels, step-notes, retried
--                                    what the outcome needs: see parts/stream_outcomes and parts/rsmq_outcomes
--   claims, expired, ended, minutes, hours, handled, handled-ids
--                                    optional: see parts/settled
-- ARGV[1]  outcome   ack, step, expire, cancel, retry, set_aside, hand_back or bury
-- ARGV[2]  names     of the keys, separated by spaces
-- ARGV[3]  group     '' in RSMQ's format
-- ARGV[4]  consumer  must still hold each delivery
-- ARGV[5]  n         deliveries, at most 500
-- then n receipts: the entry's id; of a log `<entry>@<generation>`; in RSMQ's format `<id>:<receive count>`
-- then lists, each with its name, how many values it has, and these: what the outcome needs, and optional ones:
--   ids       of the messages
--   claims    numbers, from 1, of the deliveries whose messages claim a unique key
--   results, channel, handled, counters, counts   see parts/settled
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed, and nothing is written of them.

-- with increment
-- with named
-- with receipts
-- with settled

-- Return what becomes of deliveries: see parts/stream_outcomes. Of streams nothing does when they are handled, or expired.
local function transition_of(at, lists, count, receipts, outcome)
-- with dead_letters_of
-- with due_times
-- with stream_outcomes
-- with rsmq_outcomes
  return (at.zset and rsmq_outcomes or stream_outcomes)(at, lists, count, receipts)[outcome]
end

local outcome, group, consumer, count = ARGV[1], ARGV[3], ARGV[4], tonumber(ARGV[5])
if not count or count < 1 or count > 500 or #ARGV < 5 + count then
  refuse('1 to 500 receipts are needed')
end
local at, named = keys_named(ARGV[2])
local lists = lists_from(6 + count)
if not lists then
  refuse('a list needs its name, its size and its values')
end
local receipts = receipts_of(at, group, consumer, count)
local is_plain = not at.zset and (outcome == 'ack' or outcome == 'expire')
local move_of = not is_plain and transition_of(at, lists, count, receipts, outcome)
if not is_plain and not move_of then
  refuse('this queue has no outcome with this name')
end
if lists.claims or lists.handled or at.expired or at.ended then
  check_lists(lists, count, 'ids')
end
if lists.claims then
  check_keys(at, { claims = 'hash' })
end
if lists.counters and not (at.minutes and at.hours) then
  refuse('counters need the keys minutes and hours')
end
if lists.results then
  check_lists(lists, 1, 'channel')
  if #KEYS < named + lists.results.size / 4 then
    refuse('each result needs its key')
  end
end
local move, after
if move_of then
  move, after = move_of(group)
end

local settled, stale, entries = {}, {}, {}
local is_done, problem = true, nil
if move then
  is_done, problem = pcall(function()
    receipts.allow_writes()
    for i = 1, count do
      local entry = receipts.held(ARGV[5 + i])
      if entry then
        move(entry, i)
        receipts.finish({ entry })
        settled[#settled + 1] = i
      else
        stale[#stale + 1] = ARGV[5 + i]
      end
    end
    if after then
      after()
    end
  end)
else
  for i = 1, count do
    local entry = receipts.held(ARGV[5 + i])
    if entry then
      entries[#entries + 1], settled[#settled + 1] = entry, i
    else
      stale[#stale + 1] = ARGV[5 + i]
    end
  end
  if #entries > 0 then
    receipts.finish(entries)
  end
end
-- Also when it failed in the middle.
if #settled > 0 then
  if lists.claims or lists.results or lists.handled or at.expired or at.ended then
    write_more(at, lists, named, settled)
  end
  if lists.counters then
    count_settled(at, lists.counters, lists.counts, settled)
  end
end
if not is_done then
  error(problem, 0)
end
return stale
