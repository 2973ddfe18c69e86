-- with numbers
-- A claim outlives its message when a program that knows no claims settles that, or somebody deletes it. So each has an
-- end, and a claim in 16 looks at some others in turn and removes those whose end is past. `claims-at` in control says
-- how far that has come.
local function tidy_claims(claims, control, now)
  if redis.call('time')[2] % 16 ~= 0 then
    return
  end
  local found = redis.pcall('hscan', claims, redis.call('hget', control, 'claims-at') or '0', 'count', 100)
  redis.call('hset', control, 'claims-at', found.err and '0' or found[1])
  local fields = found[2] or {}
  for at = 1, #fields, 2 do
    local key, ends, id = string.match(fields[at], '^k:(.*)$'), string.match(fields[at + 1], '^(%d+):(.*)$')
    if key and ends and ends ~= '0' and number_of(ends) <= now then
      redis.call('hdel', claims, 'k:' .. key, 'i:' .. id)
    end
  end
end
