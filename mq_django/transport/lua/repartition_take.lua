-- Put what is in a closed partition on its way to another one: into `moving`, in the order in which it is handled there.
--
-- A message leaves its place in the same step. So whatever goes on here meanwhile, such as a promoter, it is moved once.
-- What waits to be tried again, or is due later, follows all that is ready: a message that is made ready meanwhile is in
-- front of it.
--
-- KEYS[1]  control    {queue.p.x}:control      HASH
-- KEYS[2]  moving     {queue.p.x}:moving       STREAM  entries: state, name, id, score, token, claim, until, cancel; then
--                                                      the fields of the message, or `body`
-- KEYS[3]   ready      {queue.p.x}:ready        STREAM
-- KEYS[4]   front      {queue.p.x}:front        STREAM
-- KEYS[5]   priority   {queue.p.x}:priority     ZSET    score: see parts/ranks
-- KEYS[6]   due        {queue.p.x}:due          ZSET    score: due time, ms
-- KEYS[7]   unhandled  {queue.p.x}:unhandled    ZSET
-- KEYS[8]   parked     {queue.p.x}:parked       ZSET
-- KEYS[9]   waiting    {queue.p.x}:waiting      HASH    member -> body
-- KEYS[10]  unique     {queue.p.x}:unique       HASH    unique member -> id, and id -> member
-- KEYS[11]  claims     {queue.p.x}:claims       HASH    see waiting_claim
-- KEYS[12]  cancels    {queue.p.x}:cancels      ZSET
-- KEYS[13]  dead       {queue.p.x}:dead         STREAM
-- KEYS[14]  dead ids   {queue.p.x}:dead-ids     HASH    message id -> entry of `dead`
-- KEYS[15]  groups     {queue.p.x}:dead-groups  HASH    see parts/dead_letters
-- KEYS[16]  permits    {queue.p.x}:permits      ZSET    see parts/tokens
-- KEYS[17]  notes      {queue.p.x}:step-notes   HASH    see parts/step_notes
-- ARGV[1]  group
-- ARGV[2]  limit      messages, at most 500
-- ARGV[3]  bytes      it ends after the message that exceeds them
-- ARGV[4]  cursor     of the reply before; '0' at first
--
-- Returns {messages, claims and notes that were taken, how much is left of what consumers do not hold, deliveries that
-- consumers still hold, a cursor}; or 'OPEN' if the partition is not closed: nothing is written.

-- with types
-- with undelivered
-- with tokens
-- with bodies
-- with waiting_members
-- with line_fields
-- with lists
-- with stream_state
-- with dead_letters
local control, moving, ready, front, priority, due, unhandled, parked = unpack(KEYS, 1, 8)
local waiting, unique, claims, cancels, dead, ids, groups, permits, notes = unpack(KEYS, 9, 17)
local group, limit, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

check_types({ [control] = 'hash', [moving] = 'stream', [ready] = 'stream', [front] = 'stream' })
check_types({ [priority] = 'zset', [due] = 'zset', [unhandled] = 'zset', [parked] = 'zset' })
check_types({ [waiting] = 'hash', [unique] = 'hash', [claims] = 'hash', [cancels] = 'zset', [dead] = 'stream' })
check_types({ [ids] = 'hash', [permits] = 'zset', [notes] = 'hash' })
if redis.call('hget', control, 'partitions') ~= 'closed' then
  return 'OPEN'
end
-- Somebody may have resumed it: then messages of a key would be handled here and elsewhere.
redis.call('hset', control, 'paused', '1')

local taken, size = 0, 0
local has_claims, has_cancels = redis.call('exists', claims) == 1, redis.call('exists', cancels) == 1

local function room()
  return size >= bytes and 0 or limit - taken
end

-- Add an item, with the claim and the request to cancel of the message with this id.
local function put(place, name, id, score, token, fields)
  local claim, lasts, cancel = '', '', ''
  if has_claims and id ~= '' then
    claim = redis.call('hget', claims, 'i:' .. id) or ''
    lasts = claim ~= '' and redis.call('hget', claims, 'k:' .. claim) or ''
    if string.match(lasts, '^%d+:(.*)$') ~= id then
      claim, lasts = '', ''
    end
  end
  if has_cancels and id ~= '' then
    cancel = redis.call('zscore', cancels, id) or ''
  end
  local item = { 'state', place, 'name', name, 'id', id, 'score', score, 'token', token }
  add_all(item, 'claim', claim, 'until', lasts, 'cancel', cancel)
  for _, text in ipairs(fields) do
    item[#item + 1] = text
    size = size + #text
  end
  redis.call('xadd', moving, '*', unpack(item))
  if claim ~= '' then
    redis.call('hdel', claims, 'k:' .. claim, 'i:' .. id)
  end
  if cancel ~= '' then
    redis.call('zrem', cancels, id)
  end
  taken = taken + 1
end

local function id_in(fields)
  return pairs_of(fields).id or ''
end

local function take_entries(stream)
  local place = stream == front and 'front' or 'ready'
  for _, entry in ipairs(room() > 0 and undelivered(stream, group, math.min(room(), 50)) or {}) do
    if room() > 0 then
      local token = token_of(stream, entry[1])
      local hash = redis.call('zscore', permits, token) or ''
      keep_time(entry[2], entry[1])
      put(hash ~= '' and 'front' or place, entry[1], id_in(entry[2]), '', hash, entry[2])
      redis.call('xdel', stream, entry[1])
      redis.call('zrem', permits, token)
    end
  end
end

-- Take messages of a sorted set. What is left of one that was deleted by hand is removed.
local function take_members(from, place)
  local found = room() > 0 and redis.call('zrange', from, 0, math.min(room(), 50) - 1, 'withscores') or {}
  for at = 1, #found, 2 do
    local member, body = found[at], redis.call('hget', waiting, found[at])
    if room() > 0 then
      local id = redis.call('hget', unique, member) or id_of(member)
      if body then
        local hash = redis.call('zscore', permits, 'm-' .. member) or ''
        local fields = place == 'ready' and fields_in(body, id or member) or { 'body', body }
        local latest = redis.call('hget', unique, latest_field(member))
        if latest then
          fields[#fields + 1], fields[#fields + 2] = 'latest', latest
        end
        put(place, member, place == 'ready' and id_in(fields) or id or '', found[at + 1], hash, fields)
      end
      redis.call('zrem', from, member)
      redis.call('hdel', waiting, member)
      redis.call('zrem', permits, 'm-' .. member)
      if id and id ~= member then
        forget_member(unique, member, id)
      end
    end
  end
end

local function take_dead()
  for _, found in ipairs(room() > 0 and redis.call('xrange', dead, '-', '+', 'count', math.min(room(), 50)) or {}) do
    if room() > 0 then
      local token = 'd-' .. found[1]
      put('dead', found[1], id_in(found[2]), '', redis.call('zscore', permits, token) or '', found[2])
      remove_dead_letter(dead, ids, found[1], found[2])
      redis.call('zrem', permits, token)
    end
  end
  uncount_removed(groups)
  removed = {}
end

-- Take claims of messages that are gone, and notes. From the cursor on: a scan of a large hash that begins again each time
-- finds nothing any more at its beginning. Messages that do not fit are left to a later scan.
local function take_fields(hash, place, prefix)
  local following, found = unpack(redis.call('hscan', hash, ARGV[4], 'count', 100))
  for at = 1, #found, 2 do
    local field, value = found[at], found[at + 1]
    local name = string.sub(field, 1, #prefix) == prefix and string.sub(field, #prefix + 1)
    if field ~= '#' and room() > 0 then
      if name then
        put(place, name, '', '', '', { 'body', value })
      end
      redis.call('hdel', hash, field)
    end
  end
  return following
end

take_entries(front)
take_members(parked, 'ready')
if redis.call('exists', parked) == 0 then
  take_entries(ready)
end
if taken == 0 then
  take_members(priority, 'priority')
  take_members(unhandled, 'unhandled')
  take_members(due, 'due')
end
if taken == 0 then
  take_dead()
end
local held = 0
for _, stream in ipairs({ ready, front }) do
  local pending = redis.pcall('xpending', stream, group)
  held = held + (pending.err and 0 or pending[1])
end

-- While a message is somewhere, its claim moves with it.
local cursor = '0'
if taken == 0 and held == 0 then
  has_claims, has_cancels = false, false
  local is_claims = redis.call('exists', claims) == 1
  cursor = is_claims and take_fields(claims, 'claim', 'k:') or take_fields(notes, 'note', '')
end

local left = redis.call('xlen', dead) + redis.call('hlen', claims)
left = left + redis.call('hlen', notes) - redis.call('hexists', notes, '#')
for _, set in ipairs({ priority, unhandled, due, parked }) do
  left = left + redis.call('zcard', set)
end
if taken + left + held == 0 then
  -- The latest number of a note. Notes that come here bring theirs.
  redis.call('hdel', notes, '#')
end
return { taken, left, held, cursor }
