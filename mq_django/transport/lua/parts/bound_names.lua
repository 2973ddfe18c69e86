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
