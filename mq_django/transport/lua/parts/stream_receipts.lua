-- Receipts of deliveries that a consumer holds in its group of a stream, for parts/settle. A receipt is the entry's id.
-- `expected` is about the number of receipts, if the script gets nothing else for each delivery.
local function stream_receipts(stream, group, consumer, expected)
  local oldest = {}
  return {
    held = function(entry)
      -- Messages mostly finish in the order of delivery, so nearly all receipts are among the consumer's oldest pending
      -- entries. One XPENDING for these takes half as long as one per receipt.
      if expected and expected > 10 then
        for _, pending in ipairs(redis.call('xpending', stream, group, '-', '+', expected, consumer)) do
          oldest[pending[1]] = true
        end
      end
      expected = nil
      if oldest[entry] or #redis.call('xpending', stream, group, entry, entry, 1, consumer) == 1 then
        return entry
      end
    end,
    fields = function(entry)
      local found = redis.call('xrange', stream, entry, entry)[1]
      return found and found[2]
    end,
    reassign = function(new_owner, entries)
      entries[#entries + 1] = 'justid'
      redis.call('xclaim', stream, group, new_owner, 0, unpack(entries))
    end,
    finish = function(...)
      redis.call('xack', stream, group, ...)
      redis.call('xdel', stream, ...)
    end,
    allow_writes = function()
      -- No entry has the id 0-0.
      redis.call('xack', stream, group, '0-0')
    end,
  }
end
