-- The server's clock in microseconds since 1970. Nothing else calls TIME.
local function now_us()
  local time = redis.call('time')
  return time[1] * 1000000 + time[2]
end

-- The server's clock in milliseconds since 1970.
local function now_ms()
  return math.floor(now_us() / 1000)
end

-- Return the score of a due time: '+' and ms from now, or '=' and ms since 1970. `now` is in ms with its fraction.
local function due_at(mode, ms, now)
  return string.format('%.3f', mode == '=' and ms or now + math.max(0, ms))
end

-- Return it in whole milliseconds, as in RSMQ. One is added to a delay, because part of the current one is over: a message
-- is never early.
local function whole_due_at(mode, ms, now)
  ms = math.ceil(ms)
  return string.format('%.0f', mode == '=' and ms or ms > 0 and now + 1 + ms or now)
end
