-- with numbers
-- Tell the processes that wait for a result that it has ended.

-- The most bytes of a result that are sent along. A process reads a longer one itself.
local LARGEST_SENT = 65536

-- Return whether a line of an attempt ends a task: any status but READY, with which it is tried again, and RUNNING.
local function ends_task(line)
  return string.sub(line, 1, 18) ~= '\n{"status":"READY"' and string.sub(line, 1, 20) ~= '\n{"status":"RUNNING"'
end

-- Publish a result to each process that has registered for it. Nothing here may fail the script: who gets no message
-- looks again within a second.
local function tell_waiters(waiters, channel, key)
  local registered = redis.pcall('hget', waiters, key)
  if type(registered) ~= 'string' then
    return
  end
  redis.pcall('hdel', waiters, key)
  local length, told = redis.pcall('strlen', key), key
  if type(length) == 'number' and length <= LARGEST_SENT then
    local value = redis.pcall('getrange', key, 0, -1)
    told = type(value) == 'string' and key .. '\n' .. value or key
  end
  for process in string.gmatch(short(registered), '%d+ (%w+)') do
    redis.pcall('publish', channel .. process, told)
  end
end
