-- with lists
-- with numbers
-- The stream of a message. Its entries have the fields run, attempt, number (from 1 in the run), total (the bytes of all values
-- so far), and one with the value, which is named after what it is: see docs/protocol.md.

-- Return what the last entry says, also of a stream without entries.
local function last_chunk(key)
  local entry = redis.call('xrevrange', key, '+', '-', 'count', 1)[1]
  local said = pairs_of(entry and entry[2] or {})
  local last = { run = short(said.run), attempt = number_of(said.attempt), ended = said['end'] ~= nil }
  last.exists, last.number, last.total = entry ~= nil, number_of(said.number), number_of(said.total)
  return last
end

-- Append an entry. `last`: the one before, and then this. `most`: entries that are kept, or nil: to cut a stream takes as long
-- for one entry as for many.
local function add_chunk(key, last, number, kind, value, most)
  last.number, last.total, last.exists = number, last.total + #value, true
  local words = { 'run', last.run, 'attempt', last.attempt, 'number', number, 'total', string.format('%.0f', last.total) }
  words[9], words[10] = kind, value
  last.id = most and redis.call('xadd', key, 'maxlen', most, '*', unpack(words)) or redis.call('xadd', key, '*', unpack(words))
end

-- Append the end of a message that is not handled again, and tell the readers. `attempt`: of a message without a stream, which
-- gets one then; or '', and nothing is written.
local function end_stream(key, attempt, text, ttl)
  local last = last_chunk(key)
  if last.exists or attempt ~= '' then
    if not last.exists then
      last.run, last.attempt = '', attempt
    end
    add_chunk(key, last, last.number + 1, 'end', text)
    redis.call('pexpire', key, ttl)
    redis.call('publish', key, last.id)
  end
end
