-- with clock
-- Return where a message of an RSMQ queue waits: 'DELAYED', 'UNHANDLED', or nil when it is visible or a program may
-- have received it. A hidden message that was received belongs to its receiver, unless a consumer of ours has retried
-- it since and its score has not changed.
local function state_of(zset, hash, unhandled, retried, id)
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
