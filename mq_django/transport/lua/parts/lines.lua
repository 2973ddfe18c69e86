-- with forget_member
-- with increment
-- with line_fields
-- Lines: one for each key, of messages that may not run yet. Uses the names of parts/line_keys and parts/line_permits.

-- Maximum messages that a call puts into lines: about 4 ms.
local MOST_READ = 250
-- Places in lines have 16 digits, so that they sort as their numbers do. Messages that return, because their consumer had no
-- token for them, are before all others.
local RETURNING, ARRIVING = 2251799813685248, 4503599627370496
-- The line of the messages without a key, with FAIR. No hash of a key has 17 digits.
local NO_KEY = '10000000000000000'

local function line_goes_on(hash)
  return redis.call('zcount', parked, hash, hash) > 0
end

-- Return the hashes among the members of a sorted set, and remove the others, which would otherwise stand before them.
local function hashes_in(set, members)
  local hashes = only_hashes(members)
  if #hashes < #members then
    local is_hash = {}
    for _, hash in ipairs(hashes) do
      is_hash[hash] = true
    end
    for _, member in ipairs(members) do
      if not is_hash[member] then
        redis.call('zrem', set, member)
      end
    end
  end
  return hashes
end

-- Put a message into a line, but do not remove its entry. `is_returning`: to the front.
local function put_into_line(hash, entry, fields, is_returning)
  local id, has_time
  for at = 1, #fields, 2 do
    id = fields[at] == 'id' and fields[at + 1] or id
    has_time = has_time or fields[at] == 'time'
  end
  if not id then
    fields[#fields + 1], fields[#fields + 2] = 'id', entry
  end
  if not has_time then
    fields[#fields + 1], fields[#fields + 2] = 'time', string.match(entry, '^%d+')
  end
  local base, body, member = is_returning and RETURNING or ARRIVING, packed(fields), nil
  repeat
    local place = increment(control, 'line-places', 1)
    member = string.format('p:%.0f', base + place)
    local is_new = not (place == 1 and redis.call('exists', parked) == 1)
      and redis.call('hsetnx', waiting, member, body) == 1
    if not is_new then
      -- Another program has reset the count. The time is beyond all places that were counted.
      redis.call('hset', control, 'line-places', string.format('%.0f', now_us() / 1000))
    end
  until is_new
  redis.call('hset', unique, member, id or entry, id or entry, member)
  redis.call('zadd', parked, hash, member)
end

-- Decide about one entry. Return true if it may run now.
local function may_run(number, entry, fields, takes_turns)
  local token, key = (number == 2 and '1-' or '0-') .. entry, #fields <= 1000 and key_of(fields) or nil
  if not key and not takes_turns then
    return true
  end
  local hash = key and hash_of(key) or NO_KEY
  -- With a token it was let through before, and handed back or promoted since.
  if redis.call('zscore', permits, token) then
    return true
  end
  local permit, next_check
  if not line_goes_on(hash) then
    permit, next_check = nil, at_once
    if key then
      permit, next_check = permit_of(key, hash)
    end
    if permit and not takes_turns then
      permit(token)
      return true
    end
    redis.call('zadd', checks, permit and at_once or next_check, hash)
  end
  put_into_line(hash, entry, fields, number == 2)
  return false
end

-- Put those messages into lines that were read from a stream since the last call and may not run. Return how many.
-- `takes_turns`: all of them, with FAIR.
local function line_up(taking, number, takes_turns)
  if not uses_keys then
    taking.seen[number] = #taking.taken[number]
    return 0
  end
  local taken, gone, kept, seen, lead = taking.taken[number], {}, {}, taking.seen[number], taking.lead or 0
  for at, found in ipairs(taken) do
    local runs = at <= seen or keep_taken(taking, may_run, number, found[1], found[2], takes_turns)
    if runs then
      kept[#kept + 1] = found
    elseif runs == false then
      gone[#gone + 1] = found[1]
    else
      -- It may not run, and an error shows the consumer that it holds it.
      taking.is_broken = true
    end
    if number == 2 and not runs and at <= lead then
      taking.lead = taking.lead - 1
    end
  end
  taking.taken[number] = kept
  taking.seen[number] = #kept
  if #gone > 0 then
    local stream = number == 2 and front or ready
    redis.call('xack', stream, group, unpack(gone))
    redis.call('xdel', stream, unpack(gone))
  end
  return #gone
end

-- Let the first message of a line go to `front` if its key may run. Return true, or nil and the time of the next look;
-- without a time the line is empty.
local function release_first(hash)
  local member = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, 1)[1]
  if not member then
    return nil
  end
  local id = redis.call('hget', unique, member) or member
  local body = redis.call('hget', waiting, member)
  local fields = body and fields_in(body, id)
  local key, permit, next_check = fields and key_of(fields), nil, nil
  if key then
    permit, next_check = permit_of(key, hash)
    if not permit then
      return nil, next_check
    end
  end
  local entry
  if fields then
    if redis.call('exists', front) == 0 then
      redis.call('xgroup', 'create', front, group, '0', 'mkstream')
    end
    entry = redis.call('xadd', front, '*', unpack(fields))
  end
  redis.call('zrem', parked, member)
  redis.call('hdel', waiting, member)
  forget_member(unique, member, id)
  if permit then
    -- Last, because a log of another type fails: then the next fetch decides about the entry.
    permit('1-' .. entry)
  end
  -- What is left of a message that was deleted by hand counts as none.
  return fields and true or release_first(hash)
end

-- Read what was released, which has its tokens.
local function read_released(taking, left, released)
  local after = read(taking, 2, released)
  taking.seen[2] = #taking.taken[2]
  return left - (released - after)
end

-- Take the first messages of the lines that are due to be checked.
local function take_due(taking, left)
  local released = 0
  keep_taken(taking, function()
    -- The queue had FAIR before.
    for _, hash in ipairs(hashes_in(tags, redis.call('zrange', tags, 0, left - 1))) do
      redis.call('zadd', checks, at_once, hash)
      redis.call('zrem', tags, hash)
    end
    while released < left do
      local due = redis.call('zrangebyscore', checks, '-inf', at_once, 'limit', 0, left - released)
      for _, hash in ipairs(hashes_in(checks, due)) do
        local is_released, next_check = release_first(hash)
        released = released + (is_released and 1 or 0)
        if is_released and line_goes_on(hash) then
          -- Behind the others, or not before the one that was released ends.
          next_check = is_full(hash) and ms + CHECK_AGAIN_MS or ms + 1
        end
        if next_check then
          redis.call('zadd', checks, string.format('%.0f', next_check), hash)
        else
          redis.call('zrem', checks, hash)
        end
      end
      if #due == 0 then
        break
      end
    end
  end)
  return released > 0 and read_released(taking, left, released) or left
end

-- Wake another consumer if there is something left for it; if nothing is, note that this one will wait. The group `wake`
-- then begins where the group of the queue is, so that a message that comes before it waits wakes it at once.
local function settle_waiters(found, left, concurrent)
  local may_wait = number_of(redis.call('hget', limits, 'w')) > ms
  local more = left == 0
    and (concurrent and concurrent > found or redis.call('zcount', checks, '-inf', at_once) > 0 or redis.call('exists', tags) == 1)
  if found > 0 and may_wait and more then
    redis.pcall('xadd', wakeups, 'maxlen', '~', 16, '*', 'n', 1)
  end
  if found == 0 then
    for _, flat in ipairs(redis.call('xinfo', 'groups', ready)) do
      local state = {}
      for at = 1, #flat, 2 do
        state[flat[at]] = flat[at + 1]
      end
      if state.name == group then
        redis.pcall('xgroup', 'setid', ready, 'wake', state['last-delivered-id'])
      end
    end
    redis.call('hset', limits, 'w', string.format('%.0f', ms + WAIT_MS))
  end
end
