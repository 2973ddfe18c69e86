-- Read the schedules of a hash. A new one starts now, and so does one whose definition another program wrote: its past ticks
-- never fire.
--
-- KEYS[1]  schedules   {queue}:schedules or {queue}:runtime-schedules   HASH   see schedules_define
-- ARGV     names       of those that have no definition in the hash
--
-- Returns {now in ms, {each field, its value}}.

-- with clock
local now, names = string.format('%.0f', now_ms()), { unpack(ARGV) }
local fields = redis.call('hgetall', KEYS[1])
local known = {}
for i = 1, #fields, 2 do
  known[fields[i]] = true
  names[#names + 1] = string.match(fields[i], '^definition:(.*)$')
end
for _, name in ipairs(names) do
  local field = 'last:' .. name
  if not known[field] then
    redis.call('hset', KEYS[1], field, now)
    fields[#fields + 1], fields[#fields + 2] = field, now
    known[field] = true
  end
end
return { tonumber(now), fields }
