-- Limit the names in the counters of an hour or a day to 1000. Called for a new field: further names are counted as
-- '*'. The field `n|` + name marks a name with counters of its own, and `n|` is their number. Errors are ignored:
-- counters never prevent a publish.
local function bound_names(key, slot, name, count)
  local try = redis.pcall
  if try('hexists', key, 'n|' .. name) == 1 then
    return
  end
  local known = try('hget', key, 'n|')
  if not known or (tonumber(known) or 1000) < 1000 then
    try('hset', key, 'n|' .. name, 1)
    try('hincrby', key, 'n|', 1)
  else
    try('hdel', key, slot .. name)
    try('hincrby', key, slot .. '*', count)
  end
end

-- Add to the counters of one kind in a minute or an hour: by message name, and in a total without a name, for pages of
-- many queues. The first count of a slot may create the hash, so it sets the time to live. If a counter cannot be
-- written, nothing else fails.
local function count_in(key, ttl, slot, kind, counts)
  local try, prefix, total = redis.pcall, slot .. '|' .. kind .. '|', 0
  for name, count in pairs(counts) do
    if try('hincrby', key, prefix .. name, count) == count then
      bound_names(key, prefix, name, count)
    end
    total = total + count
  end
  if total > 0 and try('hincrby', key, prefix, total) == total then
    try('expire', key, ttl)
  end
end

-- The counters are kept for 26 hours, and for 35 days: slightly more than the charts show.
local function count(minutes, minute, hours, hour, kind, counts)
  count_in(minutes, 93600, minute, kind, counts)
  count_in(hours, 3024000, hour, kind, counts)
end
