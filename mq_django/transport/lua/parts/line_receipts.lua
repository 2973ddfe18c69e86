-- with stream_receipts
-- with tokens
-- with types
-- Receipts of deliveries of a queue with lines, for parts/settle. A settled delivery gives up its token, and the next
-- message of its key may run. `keys` are the stream, permits, parked, checks and control.

-- Return an error when one of the keys has another type than expected.
local function wrong_line_keys(keys)
  return wrong_type({ [keys[1]] = 'stream', [keys[2]] = 'zset', [keys[3]] = 'zset', [keys[4]] = 'zset', [keys[5]] = 'hash' })
end

local function line_receipts(keys, group, consumer, expected)
  local stream, permits, parked, checks, control = unpack(keys, 1, 5)
  local receipts = stream_receipts(stream, group, consumer, expected)
  local finish = receipts.finish
  -- With order a message keeps its token while it waits for another attempt or a handler.
  receipts.keeps_order = redis.call('hget', control, 'ordered') == '1'
  receipts.pass = function(entry, token)
    pass_token(permits, token_of(stream, entry), token)
  end
  receipts.token_of = token_of
  local reassign_there = receipts.reassign
  receipts.reassign = function(new_owner, entries)
    local there = {}
    for _, entry in ipairs(entries) do
      -- XCLAIM of a deleted entry would remove the delivery, whose handler still runs.
      there[#there + 1] = redis.call('xrange', stream, entry, entry)[1] and entry or nil
    end
    if #there > 0 then
      reassign_there(new_owner, there)
    end
  end
  receipts.finish = function(...)
    finish(...)
    local now
    for _, entry in ipairs({ ... }) do
      local token = token_of(stream, entry)
      local hash = redis.call('zscore', permits, token)
      if hash then
        if redis.call('zcount', parked, hash, hash) > 0 then
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
