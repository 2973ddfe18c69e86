-- with rsmq_allow_writes
-- with rsmq_messages
-- Receipts of RSMQ messages that a consumer holds, for parts/settle: `<id>:<receive count>`. Every program that
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
    finish = function(id)
      redis.call('hdel', owners, id)
    end,
    allow_writes = function()
      allow_writes(zset)
    end,
  }
end

-- Receipts whose messages are removed when they are settled.
local function last_receipts(zset, hash, owners, notes, consumer)
  local receipts = rsmq_receipts(zset, hash, owners, consumer)
  receipts.finish = function(id)
    redis.call('hdel', owners, id)
    remove_message(zset, hash, notes, id)
  end
  receipts.body = function(id)
    return redis.call('hget', hash, id) or ''
  end
  return receipts
end
