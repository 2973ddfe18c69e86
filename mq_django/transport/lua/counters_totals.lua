-- Return the sums of the counters since they are kept, and add the counters of hours that are over to `totals`: the counters
-- of hours expire.
--
-- KEYS[1]  totals   {queue}:counters:total     HASH    sums of all hours before the hour in the field `hour`
-- KEYS[2]  hours    {queue}:counters:h:<day>   HASH    of this day; and then of the days after it
-- ARGV[1]  day      of KEYS[2], in days since 1970
-- ARGV[2]  oldest   the first hour that can have counters, in hours since 1970
-- then the kinds of counters, such as 'published' or 't3'
--
-- Returns {the first hour that is not in `totals`}, and then the sum of each kind. Without sums, the days must begin
-- earlier, or go on later: at this hour.

-- with clock
-- with numbers
local totals, day, kinds = KEYS[1], tonumber(ARGV[1]), { unpack(ARGV, 3) }
local first = math.max(number_of(redis.call('hget', totals, 'hour')), tonumber(ARGV[2]))
local stop = (day + #KEYS - 1) * 24
local this_hour = math.floor(now_ms() / 3600000)
-- Clocks of other machines may be late: they still count in the hour before this one.
local closed = this_hour - 1
if first < day * 24 then
  return { first }
end

local sums = redis.call('hmget', totals, unpack(kinds))
for place = 1, #kinds do
  sums[place] = number_of(sums[place])
end

-- Add an hour to the sums, and return the next one that may have counters.
local function add_hour(hour)
  local key = KEYS[2 + math.floor(hour / 24) - day]
  if redis.call('exists', key) == 0 then
    return hour - hour % 24 + 24
  end
  local fields = {}
  for place, kind in ipairs(kinds) do
    fields[place] = hour % 24 .. '|' .. kind .. '|'
  end
  for place, count in ipairs(redis.call('hmget', key, unpack(fields))) do
    sums[place] = sums[place] + number_of(count)
  end
  return hour + 1
end

local hour = first
while hour < closed and hour < stop do
  hour = math.min(add_hour(hour), closed)
end
if hour > first then
  local fields = { 'hour', string.format('%.0f', hour) }
  for place, kind in ipairs(kinds) do
    fields[#fields + 1] = kind
    fields[#fields + 1] = string.format('%.0f', sums[place])
  end
  -- While memory is out, and for a user who may not write, the sums are not stored, and still returned.
  if type(redis.pcall('hset', totals, unpack(fields))) == 'number' then
    -- As long as the counters of hours.
    redis.pcall('expire', totals, 3024000)
    first = hour
  end
end
-- In the first hour of a day the last closed hour is of the day before, and these days may not have the current one.
if hour < closed or stop <= this_hour then
  return { first }
end
-- What a fast clock has counted in later hours is added when they begin.
while hour <= this_hour + 1 and hour < stop do
  hour = add_hour(hour)
end
return { first, unpack(sums) }
