-- with clock
-- with named
-- Receipts of deliveries that a consumer holds, for the scripts that settle or reassign them: a table of functions.
--   held(receipt)                 return the entry, or the id in RSMQ's format, if the consumer still holds the delivery
--   finish(entries)               remove settled ones from the consumer
--   reassign(new_owner, entries)  assign them to another consumer; return those that ended instead, if any
--   fields(entry)                 return the fields of an entry, or nil
--   allow_writes()                make a write that Redis allows when memory is out; the writes after it are then
--                                 allowed, too, so that a full Redis can be emptied
-- `at` has the keys by name. Which form the queue has follows from these: `log`, `permits` or `zset` has one form only. What one
-- form needs is inside its function, because to make a function takes Redis longer than to settle a message.

-- A receipt is the entry's id. `expected` is about the number of receipts.
local function stream_receipts(stream, group, consumer, expected)
  local oldest
  return {
    held = function(entry)
      -- Messages mostly finish in the order of delivery, so nearly all receipts are among the consumer's oldest pending
      -- entries. One XPENDING for these takes half as long as one per receipt.
      if not oldest then
        oldest = {}
        for _, pending in ipairs(expected > 10 and redis.call('xpending', stream, group, '-', '+', expected, consumer) or {}) do
          oldest[pending[1]] = true
        end
      end
      if oldest[entry] then
        oldest[entry] = nil
        return entry
      end
      return #redis.call('xpending', stream, group, entry, entry, 1, consumer) == 1 and entry or nil
    end,
    fields = function(entry)
      local found = redis.call('xrange', stream, entry, entry)[1]
      return found and found[2]
    end,
    reassign = function(new_owner, entries)
      entries[#entries + 1] = 'justid'
      redis.call('xclaim', stream, group, new_owner, 0, unpack(entries))
    end,
    finish = function(entries)
      redis.call('xack', stream, group, unpack(entries))
      redis.call('xdel', stream, unpack(entries))
    end,
    allow_writes = function()
      -- No entry has the id 0-0.
      redis.call('xack', stream, group, '0-0')
    end,
  }
end

-- Of a topic's log: settled entries are acked, not deleted. A receipt is the entry and the group's generation: after a
-- seek the same consumer may hold the same entry again, and the outcome of the first delivery must not settle the second.
local function log_receipts(log, control, group, consumer, expected)
  local generation = redis.call('hget', control, 'log-generation') or ''
  local receipts = stream_receipts(log, group, consumer, expected)
  local held = receipts.held
  receipts.held = function(receipt)
    local entry, delivered_in = string.match(receipt, '^(.*)@(.*)$')
    return delivered_in == generation and held(entry) or nil
  end
  receipts.finish = function(entries)
    redis.call('xack', log, group, unpack(entries))
  end
  return receipts
end

-- Of a queue with lines: a settled delivery gives up its token, and the next message of its key may run.
local function line_receipts(at, group, consumer, expected)
-- with tokens
  local stream, permits, lines, checks = at.stream, at.permits, at.parked, at['next-checks']
  local receipts = stream_receipts(stream, group, consumer, expected)
  local finish, reassign = receipts.finish, receipts.reassign
  -- With order a message keeps its token while it waits for another attempt or a handler.
  receipts.keeps_order = redis.call('hget', at.control, 'ordered') == '1'
  receipts.holds_key = receipts.keeps_order and redis.call('hget', at.control, 'hold') == '1'
  receipts.token_of = token_of
  receipts.pass = function(entry, token)
    pass_token(permits, token_of(stream, entry), token)
  end
  receipts.reassign = function(new_owner, entries)
    local there, ended = {}, {}
    for _, entry in ipairs(entries) do
      if receipts.fields(entry) then
        there[#there + 1] = entry
      elseif new_owner ~= consumer then
        -- Another program has deleted it, so nobody else can run the message. It ends here: its key would wait for as
        -- long as this consumer exists.
        receipts.finish({ entry })
        ended[#ended + 1] = entry
      end
      -- XCLAIM of a deleted entry would remove the delivery, whose handler still runs.
    end
    if #there > 0 then
      reassign(new_owner, there)
    end
    return ended
  end
  receipts.finish = function(entries)
    finish(entries)
    local now
    for _, entry in ipairs(entries) do
      local token = token_of(stream, entry)
      local hash = redis.call('zscore', permits, token)
      if hash then
        if redis.call('zcount', lines, hash, hash) > 0 then
          now = now or string.format('%.3f', now_us() / 1000)
          redis.call('zadd', checks, now, hash)
        else
          redis.call('zrem', checks, hash)
        end
        redis.call('zrem', permits, token)
      end
    end
  end
  return receipts
end

-- Receipts of RSMQ messages that a consumer holds: `<id>:<receive count>`. Every program that
-- receives a message increments its count, which makes earlier receipts stale.
local function rsmq_receipts(zset, hash, owners, consumer)
  return {
    held = function(receipt)
      local id, count = string.match(receipt, '^(.*):(%d+)$')
      if
        id
        and redis.call('hget', owners, id) == consumer .. ' ' .. count
        and redis.call('hget', hash, id .. ':rc') == count
        and redis.call('zscore', zset, id)
      then
        return id
      end
    end,
    finish = function(ids)
      -- One by one: Redis scans a small hash of owners from its start for each field.
      for _, id in ipairs(ids) do
        redis.call('hdel', owners, id)
      end
    end,
    -- `ms`: for how long they are hidden.
    reassign = function(new_owner, ids, ms)
      local hidden = string.format('%.0f', now_ms() + ms)
      for _, id in ipairs(ids) do
        redis.call('zadd', zset, hidden, id)
        redis.call('hset', owners, id, new_owner .. ' ' .. redis.call('hget', hash, id .. ':rc'))
      end
    end,
    allow_writes = function()
      -- It removes nothing.
      redis.call('zremrangebyrank', zset, 1, 0)
    end,
  }
end

-- Return the receipts of a form.
local function receipts_of(at, group, consumer, expected)
  if at.zset then
    check_keys(at, { hash = 'hash', owners = 'hash' })
    return rsmq_receipts(at.zset, at.hash, at.owners, consumer)
  elseif at.log then
    check_keys(at, { control = 'hash' })
    return log_receipts(at.log, at.control, group, consumer, expected)
  elseif at.permits then
    check_keys(at, { stream = 'stream', permits = 'zset', parked = 'zset', ['next-checks'] = 'zset', control = 'hash' })
    return line_receipts(at, group, consumer, expected)
  end
  if not at.stream then
    refuse('no key has the name stream')
  end
  return stream_receipts(at.stream, group, consumer, expected)
end
