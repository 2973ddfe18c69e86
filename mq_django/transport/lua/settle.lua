-- Settle deliveries with one kind of outcome, and write all that belongs to it: results, history, counters, claims, notes.
--
-- KEYS     as named; after these the keys of streams, the keys of results, and {queue}:waiters, which may be missing
--   stream                           {queue}:ready or :front            STREAM   of a queue
--   permits, parked, next-checks, control  {queue}:permits, …                  see parts/tokens; of a queue with lines
--   log, control                     {topic}:log, {topic}:g:<group>:control   STREAM, HASH   of a topic's group
--   zset, hash, owners, notes        {namespace}:<queue>, …:Q, …:mq:owners, …:mq:notes   of a queue in RSMQ's format
--   due, waiting, unhandled, ready, front, dead, dead-ids, dead-groups, cancels, step-notes, retried
--                                    what the outcome needs: see stream_outcomes and rsmq_outcomes
--   claims, expired, ended, minutes, hours, handled, handled-ids
--                                    optional: see write_more
-- ARGV[1]  outcome   ack, step, expire, cancel, retry, set_aside, park, hand_back or bury
-- ARGV[2]  names     of the keys, separated by spaces
-- ARGV[3]  group     '' in RSMQ's format
-- ARGV[4]  consumer  must still hold each delivery
-- ARGV[5]  n         deliveries, at most 500
-- then n receipts: the entry's id; of a log `<entry>@<generation>`; in RSMQ's format `<id>:<receive count>`
-- then lists, each with its name, how many values it has, and these: what the outcome needs, and optional ones:
--   ids       of the messages
--   claims    numbers, from 1, of the deliveries whose messages claim a unique key
--   ends, results, channel, handled, counters, counts   see count_settled and write_more
--
-- Returns the receipts that the consumer no longer holds; these deliveries are not changed, and nothing is written of them.

-- with numbers
-- with named
-- with receipts
-- with clock
-- with count
-- What is written about deliveries once they are settled, in the same script: so of a refused outcome nothing stays, and
-- each is counted once, however often a batch is sent again. Nothing here may keep a delivery: what cannot be written is
-- left out. `settled` has the numbers of the deliveries, in their order.

-- Count deliveries. counters: the minute of the hour, the hour of the day; for each run of deliveries, in their order, how
-- many, their name, and what they count as, such as 'handled t3'. counts: what else is counted: the kind, the name, how many.
local function count_settled(at, list, more, settled)
  local counts, next_one, upto = {}, 1, 0
  for k = 3, list.size, 3 do
    local name, kinds = unpack(ARGV, list.before + k + 1, list.before + k + 2)
    upto = upto + tonumber(ARGV[list.before + k])
    local first = next_one
    while settled[next_one] and settled[next_one] <= upto do
      next_one = next_one + 1
    end
    for kind in string.gmatch(next_one > first and kinds or '', '%S+') do
      counts[kind] = counts[kind] or {}
      counts[kind][name] = (counts[kind][name] or 0) + next_one - first
    end
  end
  for k = 1, more and more.size or 0, 3 do
    local kind, name, number = unpack(ARGV, more.before + k, more.before + k + 2)
    counts[kind] = counts[kind] or {}
    counts[kind][name] = (counts[kind][name] or 0) + number
  end
  local minute, hour = ARGV[list.before + 1], ARGV[list.before + 2]
  for kind, by_name in pairs(counts) do
    count(at.minutes, minute, at.hours, hour, kind, by_name)
  end
end

-- Write all but the counters: what most batches do not need is made only here.
local function write_more(at, lists, named, settled)
-- with claims
-- with ended
-- with waiters
  -- Keep the histories of messages: handled: ttl in ms, then for each its delivery's number and the line of JSON.
  local function add_history(at, lists, is_settled)
    local list, lines, entry = lists.handled, {}, nil
    local handled, ids = usable(at.handled, 'stream'), usable(at['handled-ids'], 'hash')
    if not handled or not ids then
      return
    end
    local ttl, added = ARGV[list.before + 1], 0
    local function add()
      entry = redis.pcall('xadd', handled, '*', unpack(lines))
      local index = {}
      for i = 1, #lines, 2 do
        index[i], index[i + 1] = 'i:' .. lines[i], entry
      end
      if type(entry) == 'string' then
        redis.pcall('hset', ids, unpack(index))
        added = added + #lines / 2
      end
      lines = {}
    end
    for k = 2, list.size, 2 do
      local i = tonumber(ARGV[list.before + k])
      if is_settled[i] then
        lines[#lines + 1] = ARGV[lists.ids.before + i]
        lines[#lines + 1] = ARGV[list.before + k + 1]
        -- An entry has at most 100 messages: one that is read is in memory at once.
        if #lines == 200 then
          add()
        end
      end
    end
    if #lines > 0 then
      add()
    end
    if added > 0 then
      increment(ids, 'total', added)
      redis.pcall('pexpire', handled, ttl)
      redis.pcall('pexpire', ids, ttl)
    end
  end

  -- Append outcomes to the results of tasks, and tell the processes that wait for those that have ended. results: for each
  -- its delivery's number; the line for the task, written if the result does not exist; the line for the attempt; the time
  -- to live in ms. Their keys follow the ones of streams, and the last key is that of waiters, which may be missing. channel: of
  -- processes, without the process at its end.
  local function append_results(lists, named, is_settled)
    local try, list = redis.pcall, lists.results
    local waiters = KEYS[named + list.size / 4 + 1]
    local is_awaited = waiters and redis.call('exists', waiters) == 1
    for k = 1, list.size / 4 do
      local key, task, attempt, ttl = KEYS[named + k], unpack(ARGV, list.before + 4 * k - 2, list.before + 4 * k)
      if is_settled[tonumber(ARGV[list.before + 4 * k - 3])] then
        local length = try('append', key, attempt)
        if length == #attempt then
          try('set', key, task .. attempt, 'px', ttl)
        elseif type(length) ~= 'table' then
          try('pexpire', key, ttl)
        end
        if is_awaited and ends_task(attempt) then
          tell_waiters(waiters, ARGV[lists.channel.before + 1], key)
        end
      end
    end
  end

  -- Remember the ids of messages that are discarded because they have expired: of the last week, at most 10,000.
  local function remember_expired(expired, ids, now)
    local try, week = redis.pcall, 604800000
    try('zremrangebyscore', expired, '-inf', now - week)
    for _, id in ipairs(ids) do
      try('zadd', expired, 'nx', now, id)
    end
    try('zremrangebyrank', expired, 0, -10001)
    try('pexpire', expired, week)
  end

  local is_settled, ids = {}, {}
  for n, i in ipairs(settled) do
    is_settled[i] = true
    ids[n] = lists.ids and ARGV[lists.ids.before + i]
  end
  for k = 1, lists.claims and lists.claims.size or 0 do
    local i = tonumber(ARGV[lists.claims.before + k])
    if is_settled[i] then
      release_claim(at.claims, ARGV[lists.ids.before + i])
    end
  end
  if at.expired and usable(at.expired, 'zset') then
    remember_expired(at.expired, ids, now_ms())
  end
  if at.ended and usable(at.ended, 'stream') then
    add_ended(at.ended, ids)
  end
  -- End the streams of messages. ends: the time to live in ms; for each its delivery's number, the attempt, or '' if no
  -- stream is made, and the JSON text. Their keys follow the named ones.
  if lists.ends then
-- with message_streams
    local before, streams = lists.ends.before, (lists.ends.size - 1) / 3
    for k = 1, streams do
      local number, attempt, text = unpack(ARGV, before + 3 * k - 1, before + 3 * k + 1)
      if is_settled[tonumber(number)] and usable(KEYS[named + k], 'stream') then
        pcall(end_stream, KEYS[named + k], attempt, text, ARGV[before + 1])
      end
    end
    named = named + streams
  end
  if lists.results then
    append_results(lists, named, is_settled)
  end
  if lists.handled then
    add_history(at, lists, is_settled)
  end
end

-- Return what becomes of deliveries: see stream_outcomes. Of streams nothing does when they are handled, or expired.
local function transition_of(at, lists, count, receipts, outcome)
-- with dead_letters
-- with due_times
-- with bodies
-- with step_notes
-- with undelivered
-- with line_places
  -- Return the value of a list for a delivery.
  local function value(name, i)
    return ARGV[lists[name].before + i]
  end

  -- How deliveries become dead letters, in each form of queue: see settle. `buried(entry, dead)` is called with
  -- each and the entry of its dead letter; `body_of(entry)`, if there is one, returns what a redrive puts back.
  local function dead_letters_of(at, lists, count, buried, body_of)
    check_keys(at, { dead = 'stream', ['dead-ids'] = 'hash' })
    if not at['dead-groups'] then
      refuse('no key has the name dead-groups')
    end
    check_lists(lists, count, 'ids', 'sizes')
    local ends, total = {}, 0
    for i = 1, count do
      total = total + (tonumber(ARGV[lists.sizes.before + i]) or -1)
      ends[i] = total
    end
    check_lists(lists, total, 'fields')
    local notes, now, fields = usable(at['step-notes'], 'hash'), now_ms(), lists.fields.before
    return function(entry, i)
      local id, letter = value('ids', i), { unpack(ARGV, fields + (ends[i - 1] or 0) + 1, fields + ends[i]) }
      if body_of then
        letter[#letter + 1] = 'deadbody'
        letter[#letter + 1] = body_of(entry)
      end
      local dead = redis.call('xadd', at.dead, '*', unpack(letter))
      redis.call('hset', at['dead-ids'], id, dead)
      buried(entry, dead)
      local group = group_of(letter, 1, #letter)
      count_dead(at['dead-groups'], at.dead, group, now)
      note_step(notes, id, 'failed', '', group)
    end
  end

  -- What becomes of deliveries of streams and logs. Each function checks keys and lists, and returns a function that writes a
  -- delivery to its next place: it gets the entry and the delivery's number. Where a second one is returned, that is called
  -- at the end.

  -- Return the fields of the new entry of a returned message: the old fields, its id and time, and a mark. 'lost':
  -- the consumer's machine failed; the second time the message has to run alone. 'suspect': the message was one of
  -- several that ran when their process died; it has to run alone.
  local function returned_fields(fields, id, time, mark)
    local present = {}
    for i = 1, #fields, 2 do
      present[fields[i]] = true
    end
    local function add(name, value)
      if value ~= '' and not present[name] then
        fields[#fields + 1] = name
        fields[#fields + 1] = value
      end
    end
    add('id', id)
    add('time', time)
    if mark == 'lost' then
      add(present.lost and 'alone' or 'lost', '1')
    elseif mark == 'suspect' then
      add('alone', 'suspect')
    end
    return fields
  end

  local function stream_outcomes(at, lists, count, receipts)
    local outcomes = {}

    -- Keep the key of an ordered message waiting with it.
    local function wait_with(entry, member)
      if receipts.keeps_order then
        receipts.pass(entry, 'm-' .. member)
      end
    end

    -- A step of a workflow is handled: note how it has ended. Lists: ids, events, added, values.
    function outcomes.step()
      local notes = at['step-notes']
      check_keys(at, { [at.log and 'log' or 'stream'] = 'stream', ['step-notes'] = 'hash' })
      check_lists(lists, count, 'ids', 'events', 'added', 'values')
      return function(_, i)
        note_step(notes, value('ids', i), value('events', i), value('added', i), value('values', i))
      end
    end

    -- Cancelled: forget the requests for that. Lists: ids.
    function outcomes.cancel()
      local cancels, notes = usable(at.cancels, 'zset'), usable(at['step-notes'], 'hash')
      check_lists(lists, count, 'ids')
      return function(_, i)
        if cancels then
          redis.call('zrem', cancels, value('ids', i))
        end
        note_step(notes, value('ids', i), 'failed', '', 'cancelled')
      end
    end

    -- To `due`, for another attempt. With order their keys wait for that. Lists: ids, delays (ms), bodies; wake: the channel
    -- that gets the new first due time.
    function outcomes.retry()
      check_keys(at, { due = 'zset', waiting = 'hash' })
      check_lists(lists, count, 'ids', 'delays', 'bodies')
      check_lists(lists, 1, 'wake')
      local now, first = now_us() / 1000, first_due(at.due)
      return function(entry, i)
        local score = due_at('+', value('delays', i), now)
        local member = put_body(at.waiting, value('ids', i), value('bodies', i))
        redis.call('zadd', at.due, score, member)
        wait_with(entry, member)
      end, function()
        wake_if_earlier(at.due, first, value('wake', 1))
      end
    end

    -- To `unhandled`, until a consumer has a handler for their names. No attempt is counted. With order their keys wait.
    -- Lists: ids, scores (hashes of the names), bodies.
    function outcomes.set_aside()
      check_keys(at, { unhandled = 'zset', waiting = 'hash' })
      check_lists(lists, count, 'ids', 'scores', 'bodies')
      return function(entry, i)
        local member = put_body(at.waiting, value('ids', i), value('bodies', i))
        redis.call('zadd', at.unhandled, value('scores', i), member)
        wait_with(entry, member)
      end
    end

    -- To `parked`, until what holds them ends: see parts/holds. No attempt is counted. With order their keys wait. Lists:
    -- ids, scores (of the holds), bodies.
    function outcomes.park()
      check_keys(at, { parked = 'zset', waiting = 'hash', unique = 'hash', control = 'hash' })
      check_lists(lists, count, 'ids', 'scores', 'bodies')
      return function(entry, i)
        wait_with(entry, park(at, value('scores', i), ARRIVING, value('ids', i), value('bodies', i)))
      end
    end

    -- To the front of the queue, with their tokens. No attempt is counted. Lists: ids, times, marks: 'lost', 'suspect', ''.
    function outcomes.hand_back(group)
      check_keys(at, at.front and { ready = 'stream', front = 'stream' } or { ready = 'stream' })
      check_lists(lists, count, 'ids', 'times', 'marks')
      -- Every fetch reads `front` before `ready`, but a blocked reader waits for `ready` only. It is blocked only when
      -- `ready` has no undelivered entry, and an entry of `ready` is then the first. Readers of a log wait for both.
      local target = at.front and #undelivered(at.ready, group, 1) > 0 and at.front or at.ready
      return function(entry, i)
        local fields = receipts.fields(entry)
        if fields then
          fields = returned_fields(fields, value('ids', i), value('times', i), value('marks', i))
          local returned = redis.call('xadd', target, '*', unpack(fields))
          if receipts.pass then
            receipts.pass(entry, receipts.token_of(target, returned))
          end
        end
      end, function()
        if target == at.front then
          -- Not before the first write: when memory is out, XGROUP CREATE fails, and so would the script.
          redis.pcall('xgroup', 'create', target, group, '0')
        end
      end
    end

    -- To the dead letters. Where `hold` is set in control, their keys wait until the dead letter is gone. Lists: ids, sizes
    -- (how many fields and values), fields (of all: the fields and values).
    function outcomes.bury()
      return dead_letters_of(at, lists, count, function(entry, buried)
        if receipts.holds_key then
          receipts.pass(entry, 'd-' .. buried)
        end
      end)
    end

    return outcomes
  end
-- with rsmq
  -- What becomes of deliveries of a queue in RSMQ's format: the messages stay in RSMQ's keys, and are hidden, shown or
  -- removed. See stream_outcomes. RSMQ counts every receive: one that is no attempt is noted.
  local function rsmq_outcomes(at, lists, count, receipts)
    local outcomes, zset, hash, notes = {}, at.zset, at.hash, at.notes

    local function remove(ids)
      receipts.release(ids)
      for _, id in ipairs(ids) do
        remove_message(zset, hash, notes, id)
      end
    end

    receipts.release = receipts.finish

    -- Handled, or discarded because it has expired.
    function outcomes.ack()
      receipts.finish = remove
      check_keys(at, { notes = 'hash' })
    end

    outcomes.expire = outcomes.ack

    -- Hidden until the next attempt. Lists: delays (ms); marks: 'alone' if it must run alone because it killed its process,
    -- 'free' if this receive is no attempt, or ''; histories; wake: the channel.
    function outcomes.retry()
      check_keys(at, { notes = 'hash', retried = 'zset' })
      check_lists(lists, count, 'delays', 'marks', 'histories')
      check_lists(lists, 1, 'wake')
      local now, first = now_ms(), first_due(zset)
      return function(id, i)
        local score, mark = whole_due_at('+', value('delays', i), now), value('marks', i)
        redis.call('zadd', zset, score, id)
        redis.call('zadd', at.retried, score, id)
        if mark == 'alone' then
          note_crashed(notes, id)
        else
          redis.call('hdel', notes, id .. ':alone')
        end
        if mark == 'free' then
          increment(notes, id .. ':free', 1)
        end
        redis.call('hset', notes, id .. ':story', value('histories', i))
      end, function()
        tell_first(zset, first, value('wake', 1))
      end
    end

    -- Back to where they were. Lists: times (when they were sent, ms); marks: 'lost', 'suspect' or ''; wake: the channel.
    function outcomes.hand_back()
      local now = now_ms()
      check_keys(at, { notes = 'hash' })
      check_lists(lists, count, 'times', 'marks')
      check_lists(lists, 1, 'wake')
      return function(id, i)
        local mark = value('marks', i)
        redis.call('zadd', zset, string.format('%.0f', math.min(now, value('times', i))), id)
        if mark == 'lost' then
          note_lost(notes, id)
        else
          increment(notes, id .. ':free', 1)
        end
        if mark == 'suspect' then
          redis.call('hsetnx', notes, id .. ':alone', 'suspect')
        end
      end, function()
        redis.call('publish', value('wake', 1), string.format('due %.0f', now))
      end
    end

    -- Hidden: they have no handler here, and another program may handle them. Lists: scores; hidden: for how many ms.
    function outcomes.set_aside()
      check_keys(at, { notes = 'hash', unhandled = 'zset' })
      check_lists(lists, count, 'scores')
      check_lists(lists, 1, 'hidden')
      local hidden = string.format('%.0f', now_ms() + value('hidden', 1))
      return function(id, i)
        redis.call('zadd', zset, hidden, id)
        redis.call('zadd', at.unhandled, value('scores', i), id)
        increment(notes, id .. ':free', 1)
      end
    end

    -- To the dead letters, with their raw bodies. Lists: as in stream_outcomes.
    function outcomes.bury()
      check_keys(at, { notes = 'hash' })
      receipts.finish = remove
      return dead_letters_of(at, lists, count, function() end, function(id)
        return redis.call('hget', hash, id) or ''
      end)
    end

    return outcomes
  end
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
local streams = lists.ends and (lists.ends.size - 1) / 3 or 0
if #KEYS < named + streams then
  refuse('each stream needs its key')
end
if lists.results then
  check_lists(lists, 1, 'channel')
  if #KEYS < named + streams + lists.results.size / 4 then
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
  if lists.claims or lists.results or lists.handled or lists.ends or at.expired or at.ended then
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
