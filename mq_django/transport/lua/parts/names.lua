-- Bound the names in the counters of an hour or a day, when a field is new: beyond 1000, further ones are counted
-- together, as '*'. `n|` and a name marks one that is counted apart, and `n|` says how many they are. A counter that is
-- broken stays so, and keeps no message out.
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
