-- The receipts of RSMQ messages: `<id>:<receive count>`. Whoever received one later has counted it up, whichever program
-- that was. The script has named its keys zset, hash and owners; its first argument is the consumer.
local function held(receipt)
  local id, count = string.match(receipt, '^(.*):(%d+)$')
  if
    id
    and redis.call('hget', owners, id) == ARGV[1] .. ' ' .. count
    and redis.call('hget', hash, id .. ':rc') == count
    and redis.call('zscore', zset, id)
  then
    return id
  end
end
