-- with rsmq_drains
-- with rsmq_messages
-- Receipts of RSMQ messages that a consumer holds, for parts/settle: `<id>:<receive count>`. Whoever received a message
-- later has counted it up, whichever program that was.
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

-- The same of messages that leave the queue.
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
