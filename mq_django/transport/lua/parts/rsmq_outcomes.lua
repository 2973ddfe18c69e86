-- with clock
-- with dead_letters_of
-- with due_times
-- with increment
-- with named
-- with rsmq_messages
-- What becomes of deliveries of a queue in RSMQ's format: the messages stay in RSMQ's keys, and are hidden, shown or
-- removed. See parts/stream_outcomes. RSMQ counts every receive: one that is no attempt is noted.
local function rsmq_outcomes(at, lists, count, receipts)
  local outcomes, zset, hash, notes = {}, at.zset, at.hash, at.notes

  local function value(name, i)
    return ARGV[lists[name].before + i]
  end

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
      local score, mark = due_at('+', value('delays', i), now), value('marks', i)
      redis.call('zadd', zset, score, id)
      redis.call('zadd', at.retried, score, id)
      local suspected = redis.call('hget', notes, id .. ':alone') == 'suspect'
      redis.call('hdel', notes, id .. ':alone')
      if mark == 'alone' then
        if suspected then
          -- It killed its process the first time, too: that receive counts as an attempt now.
          increment(notes, id .. ':free', -1)
        end
        redis.call('hset', notes, id .. ':alone', '1')
      elseif mark == 'free' then
        increment(notes, id .. ':free', 1)
      end
      redis.call('hset', notes, id .. ':story', value('histories', i))
    end, function()
      local head = first_due(zset)
      if head ~= first then
        redis.call('publish', value('wake', 1), 'due ' .. head)
      end
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
      increment(notes, id .. ':free', 1)
      if mark == 'lost' then
        redis.call('hset', notes, id .. (redis.call('hexists', notes, id .. ':lost') == 1 and ':alone' or ':lost'), '1')
      elseif mark == 'suspect' then
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

  -- To the dead letters, with their raw bodies. Lists: as in parts/stream_outcomes.
  function outcomes.bury()
    check_keys(at, { notes = 'hash' })
    receipts.finish = remove
    return dead_letters_of(at, lists, count, function() end, function(id)
      return redis.call('hget', hash, id) or ''
    end)
  end

  return outcomes
end
