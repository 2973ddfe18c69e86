-- with clock
-- Tell where a message of an RSMQ queue waits: 'DELAYED', 'UNHANDLED', or nothing when it can be seen or somebody may
-- have it. A hidden message that was received is with whoever received it, unless a consumer of ours has said since that
-- it is to wait, and its score has not changed.
local function waits(zset, hash, unhandled, retried, id)
  local score = redis.call('zscore', zset, id)
  if not score or tonumber(score) <= now_ms() then
    return nil
  end
  if redis.call('zscore', unhandled, id) then
    return 'UNHANDLED'
  end
  local untouched = redis.call('hexists', hash, id .. ':rc') == 0
  return (untouched or redis.call('zscore', retried, id) == score) and 'DELAYED' or nil
end
