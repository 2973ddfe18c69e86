-- Append members of a sorted set to a reply: for each the member, its score, and its body or the body's length if that is
-- more than `longest` bytes, or -1 for none. `found` has members and scores by turns.
local function add_bodies(reply, waiting, found, longest)
  for at = 1, #found, 2 do
    local length = redis.call('hstrlen', waiting, found[at])
    local body = length == 0 and -1 or length
    if length > 0 and length <= tonumber(longest) then
      body = redis.call('hget', waiting, found[at])
    end
    reply[#reply + 1] = found[at]
    reply[#reply + 1] = found[at + 1]
    reply[#reply + 1] = body
  end
  return reply
end
