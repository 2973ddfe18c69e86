-- Read the schedules that were created at run time. One whose definition another program wrote starts now.
--
-- KEYS[1]  schedules   {queue}:runtime-schedules   HASH   see schedules_define
--
-- Returns {now in ms, {each field, its value}}.

-- with clock
local now, started = now_ms(), {}
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 5) == 'last:' then
    started[string.sub(fields[i], 6)] = true
  end
end
for i = 1, #fields, 2 do
  local name = string.sub(fields[i], 12)
  if string.sub(fields[i], 1, 11) == 'definition:' and not started[name] then
    redis.call('hset', KEYS[1], 'last:' .. name, string.format('%.0f', now))
    fields[#fields + 1] = 'last:' .. name
    fields[#fields + 1] = string.format('%.0f', now)
  end
end
return { now, fields }
