-- with clock
-- Tokens in `permits`, a sorted set by the hash of the key: the tokens of a key say which of its messages run. A queue with
-- order has at most one for each key, and its next message waits until that is gone. A token is
--   '0-' or '1-' and an entry   of `ready` or `front`: the message is delivered, or may be
--   'm-' and a member           with order: the message waits in `due` or `unhandled`, or is held in `parked`, and its
--                               key with it
--   'd-' and an entry           with order: the message is a dead letter, and its key waits until that is gone

local function token_of(stream, entry)
  return (string.sub(stream, -6) == ':front' and '1-' or '0-') .. entry
end

-- Pass a token on, and return the hash of its key if there was one.
local function pass_token(permits, from, to)
  local hash = redis.call('zscore', permits, from)
  if hash then
    redis.call('zadd', permits, hash, to)
    redis.call('zrem', permits, from)
  end
  return hash
end

-- Remove a token whose message has ended. The next fetch looks at its key.
local function drop_token(permits, checks, token)
  local hash = redis.call('zscore', permits, token)
  if hash then
    redis.call('zadd', checks, string.format('%.3f', now_us() / 1000), hash)
    redis.call('zrem', permits, token)
  end
end
