-- with numbers
-- with counted
-- Add to a counter by name, in the hash of an hour or a day. Beyond 1000 names in it, further ones are counted together,
-- as '*': `n|` and a name marks those that are counted apart, and `n|` says how many they are. A counter that is broken
-- stays so, and keeps no message out.
local function count_name(key, slot, name, count)
  local try = redis.pcall
  if try('hincrby', key, slot .. name, count) ~= tonumber(count) or try('hexists', key, 'n|' .. name) ~= 0 then
    return
  end
  -- The field is new, and so is the name.
  if number_of(try('hget', key, 'n|')) < 1000 then
    try('hset', key, 'n|' .. name, 1)
    counted(key, 'n|', 1)
  else
    try('hdel', key, slot .. name)
    try('hincrby', key, slot .. '*', count)
  end
end
