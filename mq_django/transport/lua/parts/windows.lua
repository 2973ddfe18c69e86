-- with numbers
-- Rates: so many grants in any window of microseconds, by a log of the grants in it: 'when:how many' words.

-- Return how many grants are free, the words that still count, and when the first of them no longer will. A word of the
-- future counts no more: nobody but a stranger or a clock that was set back has written it, and it would stop the queue.
local function window(log, most, width, now)
  local words, used, first = {}, 0, nil
  for when, many in string.gmatch(log or '', '(%d+):(%d+)') do
    local at, count = number_of(when), math.min(number_of(many), most)
    if at >= now - width and at <= now then
      words[#words + 1] = { at, count }
      used = used + count
      first = first or at + width + 1
    end
  end
  return most - used, words, first
end

-- Return the log with grants added. Beyond 64 in a window, those of a 64th of it share a word that counts as long as its
-- last: no window ever gets more than it may, at most a 64th of the time is lost, and a log stays short.
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

-- Return the moment at which one that found nothing free may come again: each gets the next grant that is nobody's yet,
-- so that they do not all come for one. None waits more than a second longer than it has to.
local function turn_after(last, words, first, most, width, now)
  local turn = math.max(last, now) + math.ceil(width / most)
  for _, word in ipairs(words) do
    if word[1] + width + 1 > math.max(last, now) then
      turn = word[1] + width + 1
      break
    end
  end
  return math.min(turn, math.max(first, now + 1000000))
end
