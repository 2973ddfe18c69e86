-- Append what runs of handlers have streamed to the streams of their messages, and tell the readers. A run that no longer holds
-- its delivery appends nothing, and what is there already is not appended again. Another run than the last begins with a mark.
--
-- KEYS     as named; after these for each run
--   stream   {queue}:stream:<id>   STREAM with a TTL: see parts/message_streams
-- ARGV[1]  names     of the keys that the receipts need, separated by spaces: see settle
-- ARGV[2]  group     '' in RSMQ's format
-- ARGV[3]  consumer  must still hold each delivery
-- ARGV[4]  entries   that a stream keeps
-- ARGV[5]  bytes     of values that a stream keeps, beside its oldest entry
-- ARGV[6]  time to live, ms
-- then for each run: the receipt of its delivery; the run; its attempt; how many chunks; of each its number, kind and value
--
-- Returns for each run the number of its last chunk in the stream; -1 if the consumer no longer holds the delivery; -2 if the
-- stream cannot be written, because another program has made the key something else.

-- with named
-- with receipts
-- with message_streams

-- Entries that a call may still delete.
local to_delete = 1000

-- Delete the oldest entries while there are more bytes than allowed.
local function trim(key, last, bytes)
  local count = 1
  while to_delete > 0 and last.total > bytes do
    local gone = {}
    for _, entry in ipairs(redis.call('xrange', key, '-', '+', 'count', count)) do
      local total = 0
      for i = 1, #entry[2], 2 do
        total = entry[2][i] == 'total' and number_of(entry[2][i + 1]) or total
      end
      if entry[1] == last.id or last.total - total <= bytes then
        break
      end
      gone[#gone + 1] = entry[1]
    end
    if #gone > 0 then
      redis.call('xdel', key, unpack(gone))
    end
    if #gone < count then
      return
    end
    to_delete, count = to_delete - count, 10
  end
end

local entries, bytes, ttl = ARGV[4], tonumber(ARGV[5]), ARGV[6]

-- Append the chunks of a run, which are in ARGV from `first` on, and return the number of the last one in the stream.
local function append(key, run, attempt, first, count)
  local last = last_chunk(key)
  if last.exists and (last.run ~= run or last.ended) then
    last.run, last.attempt, last.ended = run, attempt, false
    add_chunk(key, last, 0, 'restart', '')
  elseif not last.exists then
    last.run, last.attempt, last.number = run, attempt, 0
  end
  local final = first + 3 * (count - 1)
  for k = first, final, 3 do
    local number = tonumber(ARGV[k])
    if number > last.number then
      add_chunk(key, last, number, ARGV[k + 1], ARGV[k + 2], k == final and entries or nil)
    end
  end
  if last.id then
    trim(key, last, bytes)
    redis.call('pexpire', key, ttl)
    redis.call('publish', key, last.id)
  end
  return last.number
end

local at, named = keys_named(ARGV[1])
local receipts = receipts_of(at, ARGV[2], ARGV[3], #KEYS - named)
local reply, next_run = {}, 7
for i = 1, #KEYS - named do
  local key, first, count = KEYS[named + i], next_run, tonumber(ARGV[next_run + 3])
  local receipt, run, attempt = unpack(ARGV, first, first + 2)
  next_run = first + 4 + 3 * count
  if not receipts.held(receipt) then
    reply[i] = -1
  elseif wrong_type({ [key] = 'stream' }) then
    reply[i] = -2
  else
    local is_done, found = pcall(append, key, run, attempt, first + 4, count)
    local problem = not is_done and (type(found) == 'table' and found.err or found)
    if problem and string.find(problem, 'OOM', 1, true) then
      error(found, 0)
    end
    reply[i] = is_done and found or -2
  end
end
return reply
