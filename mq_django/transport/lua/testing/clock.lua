-- The moved clock of tests. It stands before the text of a script. What the script calls `redis` then answers TIME with
-- a time that is moved by the milliseconds in `mq:testing:clock`, or is the time `=ms` in it, and gives new entries of
-- streams ids of this time.
-- This key is not in KEYS, so a Redis Cluster refuses it. EXPIRE, PEXPIRE and the idle times of deliveries are not moved.
local redis = (function(server)
  local function moved_us()
    local time, moved = server.call('time'), server.call('get', 'mq:testing:clock') or '0'
    local fixed = string.match(moved, '^=(%d+)$')
    return fixed and fixed * 1000 or time[1] * 1000000 + time[2] + moved * 1000
  end

  -- Return the id of a new entry. Ids increase also when the clock was moved back.
  local function next_id(stream)
    local info, last = server.pcall('xinfo', 'stream', stream), '0-0'
    for at = 1, info.err and 0 or #info, 2 do
      last = info[at] == 'last-generated-id' and info[at + 1] or last
    end
    local ms, n = string.match(last, '^(%d+)-(%d+)$')
    local now = math.floor(moved_us() / 1000)
    if tonumber(ms) < now then
      return string.format('%.0f-0', now)
    end
    return ms .. '-' .. string.format('%.0f', n + 1)
  end

  -- Return the place of '*' among the arguments of XADD, or nil if they have an id. The key is the first of them.
  local function place_of_id(args)
    for at = 2, #args do
      if args[at] == '*' then
        return at
      elseif string.match(args[at], '^%d+%-%d+$') then
        return nil
      end
    end
  end

  local function moved(call, name, ...)
    local command = string.lower(name)
    if command == 'time' then
      local us = moved_us()
      return { string.format('%.0f', math.floor(us / 1000000)), string.format('%.0f', us % 1000000) }
    elseif command == 'xadd' then
      local args = { ... }
      local at = place_of_id(args)
      if at then
        args[at] = next_id(args[1])
        return call(name, unpack(args))
      end
    end
    return call(name, ...)
  end

  return setmetatable({
    call = function(...) return moved(server.call, ...) end,
    pcall = function(...) return moved(server.pcall, ...) end,
  }, { __index = server })
end)(redis)
