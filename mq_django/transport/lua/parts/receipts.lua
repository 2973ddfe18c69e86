-- Receipts of deliveries that a consumer holds in its group of a stream, for parts/settle. A receipt is the entry's id.
-- `expected` is how many of them the script asks about, if it asks about nothing but receipts.
local function stream_receipts(stream, group, consumer, expected)
  local oldest = nil

  -- Messages are mostly done in the order they came, so that the oldest of what the consumer holds are nearly all of
  -- them: asked for together they take half as long as one by one.
  local function is_among_the_oldest(entry)
    if not oldest then
      oldest = {}
      for _, pending in ipairs(redis.call('xpending', stream, group, '-', '+', expected, consumer)) do
        oldest[pending[1]] = true
      end
    end
    return oldest[entry]
  end

  return {
    held = function(entry)
      if expected and expected > 10 and is_among_the_oldest(entry) then
        return entry
      end
      return #redis.call('xpending', stream, group, entry, entry, 1, consumer) == 1 and entry or nil
    end,
    fields = function(entry)
      local found = redis.call('xrange', stream, entry, entry)[1]
      return found and found[2]
    end,
    pass = function(new_owner, entries)
      entries[#entries + 1] = 'justid'
      redis.call('xclaim', stream, group, new_owner, 0, unpack(entries))
    end,
    finish = function(...)
      redis.call('xack', stream, group, ...)
      redis.call('xdel', stream, ...)
    end,
    allow_writes = function()
      -- No entry is 0-0.
      redis.call('xack', stream, group, '0-0')
    end,
  }
end

-- The same of a topic's log, which is kept: what is settled is acked, not deleted. A receipt is the entry and the
-- generation it was delivered in: after a seek the same consumer may hold the same entry again, and what the first pass
-- has to say must not settle the second.
local function log_receipts(log, control, group, consumer, expected)
  local generation = redis.call('hget', control, 'log-generation') or ''
  local receipts = stream_receipts(log, group, consumer, expected)
  local held = receipts.held
  receipts.held = function(receipt)
    local entry, of = string.match(receipt, '^(.*)@(.*)$')
    return of == generation and held(entry) or nil
  end
  receipts.finish = function(...)
    redis.call('xack', log, group, ...)
  end
  return receipts
end
