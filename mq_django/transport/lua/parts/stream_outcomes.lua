-- with bodies
-- with clock
-- with dead_letters_of
-- with due_times
-- with named
-- with step_notes
-- with undelivered
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

  -- Return the value of a list for a delivery.
  local function value(name, i)
    return ARGV[lists[name].before + i]
  end

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
    local now, first = now_ms(), first_due(at.due)
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
