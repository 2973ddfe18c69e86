-- with numbers
-- Rate limits over a sliding window of `width` microseconds. A grant log has words 'time:count'.

-- Return the number of free grants, the words inside the window, and when the first of them leaves it. A word with a
-- future time is ignored: it was written by another program or before the clock was set back, and would block the
-- queue.
local function window(log, most, width, now)
  local words, used, first = {}, 0, nil
  for when, many in string.gmatch(short(log), '(%d+):(%d+)') do
    local at, count = number_of(when), math.min(number_of(many), most)
    if at >= now - width and at <= now then
      words[#words + 1] = { at, count }
      used = used + count
      first = first or at + width + 1
    end
  end
  return most - used, words, first
end

-- Return the log with grants added. If a window allows more than 64 grants, all grants of each 64th of it share a word with
-- the time of the last: the limit is never exceeded, at most a 64th of the window is lost, and a log stays short.
local function granted(words, count, most, width, now)
  local last, slot = words[#words], width / 64
  if last and (last[1] == now or most > 64 and math.floor(last[1] / slot) == math.floor(now / slot)) then
    last[1], last[2] = now, last[2] + count
  elseif count > 0 then
    words[#words + 1] = { now, count }
  end
  local log = {}
  for i, word in ipairs(words) do
    log[i] = string.format('%.0f:%d', word[1], word[2])
  end
  return table.concat(log, ' ')
end

-- Return when a consumer that found no free grant may ask again. Each consumer gets the next grant that no other waits
-- for, so that they do not all ask at once. None waits more than a second longer than necessary.
local function next_turn(last, words, first, most, width, now)
  local turn = math.max(last, now) + math.ceil(width / most)
  for _, word in ipairs(words) do
    if word[1] + width + 1 > math.max(last, now) then
      turn = word[1] + width + 1
      break
    end
  end
  return math.min(turn, math.max(first, now + 1000000))
end
