-- with numbers
-- The mark of an outbox: its latest claim for a place, up to which row that is published, and which rows were refused.
-- field -> 'number token done ended', and field .. ':refused' -> a line for each: row, tab, reason

local function read_mark(key, field)
  local text = redis.call('hget', key, field) or ''
  local number, token, done, ended = string.match(text, '^(%d+) (%S+) (%d+) ([01])$')
  return {
    number = number_of(number),
    token = token or '',
    done = number_of(done),
    is_ended = ended == '1',
    refused = number and redis.call('hget', key, field .. ':refused') or '',
  }
end

local function write_mark(key, field, mark)
  local ended = mark.is_ended and 1 or 0
  redis.call('hset', key, field, string.format('%.0f %s %.0f %d', mark.number, mark.token, mark.done, ended))
  if mark.refused == '' then
    redis.call('hdel', key, field .. ':refused')
  else
    redis.call('hset', key, field .. ':refused', mark.refused)
  end
end

local function mark_reply(word, mark, answer)
  local done, ended = string.format('%.0f', mark.done), mark.is_ended and 1 or 0
  return { word, string.format('%.0f', mark.number), mark.token, done, ended, mark.refused, answer }
end

-- Whether a chunk of a claim that begins after this row comes next: nil, else why not. A new claim replaces the mark.
local function begin_chunk(mark, number, token, after)
  if mark.number > number then
    return 'BEHIND'
  elseif mark.number < number then
    if after ~= 0 then
      return 'GAP'
    end
    mark.number, mark.token, mark.done, mark.is_ended, mark.refused = number, token, 0, false, ''
  elseif mark.token ~= token then
    return 'FOREIGN'
  elseif mark.is_ended then
    return 'ENDED'
  elseif mark.done ~= after then
    return 'GAP'
  end
end

-- Note that a row is not published. A reason has no line breaks.
local function refuse(mark, row, reason)
  mark.refused = mark.refused .. row .. '\t' .. reason .. '\n'
end
