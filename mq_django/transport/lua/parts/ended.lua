-- with clock
-- Append the ids of messages that have ended, for the outboxes that keep their rows until then: at most 500. What is older
-- than a day is deleted, also if it was not read.
local function add_ended(ended, ids)
  local fields = {}
  for n, id in ipairs(ids) do
    fields[2 * n - 1], fields[2 * n] = id, ''
  end
  return redis.pcall('xadd', ended, 'minid', '~', string.format('%.0f', now_ms() - 86400000), '*', unpack(fields))
end
