-- with clock
-- with numbers
-- A claim outlives its message when a program without support for claims settles the message, or the message is deleted
-- by hand. So each claim has an end, and one claim in 16 checks about 100 others and removes expired ones. `claims-at`
-- in control is the cursor.
local function remove_expired_claims(claims, control, now)
  if now_us() % 16 ~= 0 then
    return
  end
  local found = redis.pcall('hscan', claims, redis.call('hget', control, 'claims-at') or '0', 'count', 100)
  redis.call('hset', control, 'claims-at', found.err and '0' or found[1])
  local fields = found[2] or {}
  for at = 1, #fields, 2 do
    local key, ends, id = string.match(fields[at], '^k:(.*)$'), string.match(fields[at + 1], '^(%d+):(.*)$')
    if key and ends and number_of(ends) <= now then
      redis.call('hdel', claims, 'k:' .. key, 'i:' .. id)
    end
  end
end
