-- Release the unique key that a message claims, if it still does. A step of a workflow keeps its claim when it is deleted:
-- its start may still be in `starts`, and must not publish it again.
local function release_claim(claims, id)
  local key = redis.call('hget', claims, 'i:' .. id)
  if key and key ~= 'step:' .. id then
    redis.call('hdel', claims, 'i:' .. id)
    local claim = redis.call('hget', claims, 'k:' .. key)
    if claim and string.match(claim, '^%d+:(.*)$') == id then
      redis.call('hdel', claims, 'k:' .. key)
    end
  end
end

-- Return the id of the message that has claimed a key last, or nil.
local function claimed_by(claims, key)
  local claim = redis.call('hget', claims, 'k:' .. key)
  return claim and string.match(claim, '^%d+:(.*)$')
end
