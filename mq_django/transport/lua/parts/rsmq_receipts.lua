-- with rsmq_allow_writes
-- with clock
-- Receipts of RSMQ messages that a consumer holds, see parts/receipts: `<id>:<receive count>`. Every program that
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
      allow_writes(zset)
    end,
  }
end
