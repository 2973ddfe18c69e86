-- Run a script, which is the function `inner`, for several queues of one server, one after another.
--
-- KEYS  the keys of the script for each queue
-- ARGV  for each queue: how many keys and arguments it has, and these arguments
--
-- Returns the reply for each queue; in the place of one that failed its error, which does not affect the others.

local keys, args, replies, key, arg = {}, {}, {}, 1, 1
for at, value in ipairs(KEYS) do
  keys[at] = value
end
for at, value in ipairs(ARGV) do
  args[at] = value
end
local function refill(list, from, first, count)
  for at = 1, math.max(#list, count) do
    list[at] = at <= count and from[first + at - 1] or nil
  end
end

while arg <= #args do
  local key_count, arg_count = args[arg] + 0, args[arg + 1] + 0
  refill(KEYS, keys, key, key_count)
  refill(ARGV, args, arg + 2, arg_count)
  key, arg = key + key_count, arg + 2 + arg_count
  local done, reply = pcall(inner)
  if not done and type(reply) ~= 'table' then
    reply = redis.error_reply('ERR ' .. tostring(reply))
  end
  -- A table ends at its first nil.
  replies[#replies + 1] = reply == nil and false or reply
end
return replies
