-- Take messages for a consumer from the streams of a queue or group: 1 is `ready`, 2 is `front`, 3 a topic's log.
--   taken   the entries read from each stream
--   lead    how many entries of `front` were read before `ready`: these precede its entries, the others follow them
--   failed  the last error. The entries taken before are still returned: otherwise the consumer would hold them without
--           knowing it
local function taking_from(streams, group, consumer)
  return { streams = streams, group = group, consumer = consumer, taken = { {}, {}, {} } }
end

local function ms_of(entry)
  return tonumber(string.match(entry[1], '^%d+'))
end

-- Read a stream and return how many may still be taken.
local function read(taking, number, count)
  local stream, taken = taking.streams[number], taking.taken[number]
  if count <= 0 or (number == 2 and redis.call('exists', stream) == 0) then
    return count
  end
  taking.lead = taking.lead or number == 1 and #taking.taken[2] or nil
  local reply = redis.pcall(
    'xreadgroup', 'group', taking.group, taking.consumer, 'count', count, 'streams', stream, '>'
  )
  taking.failed = reply and reply.err and reply or taking.failed
  local found = reply and reply[1] and reply[1][2] or {}
  if #taken == 0 then
    taking.taken[number] = found
  else
    for _, entry in ipairs(found) do
      table.insert(taken, entry)
    end
  end
  return count - #found
end

-- Call a function and return its result, or nil when it fails: the messages taken before are not lost.
local function keep_taken(taking, run, ...)
  local done, found = pcall(run, ...)
  if done then
    return found
  end
  taking.failed = type(found) == 'table' and found or redis.error_reply(found)
end

-- Return the number of entries taken from `ready` and `front`.
local function count_taken(taking)
  return #taking.taken[1] + #taking.taken[2]
end

-- Return for each entry taken from `front` how many of `ready` precede it; nil unless they have scores: see in_time().
local function places_of(taking)
  local places, plains, before = taking.scores and {}, taking.taken[1], 0
  local lead = taking.lead or #taking.taken[2]
  for at, entry in ipairs(places and taking.taken[2] or {}) do
    local score = taking.scores[entry[1]] or at > lead and math.huge or 0
    while plains[before + 1] and ms_of(plains[before + 1]) < score do
      before = before + 1
    end
    places[at] = before
  end
  return places
end

-- Return the reply with the taken entries, or the error if there are none.
local function all_taken(taking, ranked)
  if taking.failed and count_taken(taking) == 0 then
    return taking.failed
  end
  return { taking.taken[1], taking.taken[2], ranked, taking.lead or #taking.taken[2], places_of(taking) }
end
