-- with numbers
-- The ticks that a schedule skips are lines in its field 'skips:': the tick, and when it was skipped, in ms; and who.
-- Return the lines of those after a time, whether a tick is one of all, and whether there are any.
local function skips_of(schedules, name, after, tick)
  local text = redis.call('hget', schedules, 'skips:' .. name)
  local kept, is_skipped = {}, false
  for entry in string.gmatch(short(text), '[^\n]+') do
    local skipped = tonumber(string.match(entry, '^%d+')) or 0
    is_skipped = is_skipped or skipped == tick
    -- A time after the year 9999 was not written by a schedule.
    if skipped > after and skipped <= 253402300799999 then
      kept[#kept + 1] = entry
    end
  end
  return kept, is_skipped, text and true or false
end

-- Write the lines of the ticks that a schedule skips.
local function write_skips(schedules, name, lines)
  if #lines == 0 then
    redis.call('hdel', schedules, 'skips:' .. name)
  else
    redis.call('hset', schedules, 'skips:' .. name, table.concat(lines, '\n'))
  end
end
