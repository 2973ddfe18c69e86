-- Put messages into the partition for which they are. Messages that an earlier call has written are skipped.
--
-- KEYS[1]   control    {queue.p.x}:control      HASH
-- KEYS[2]   arrived    {queue.p.x}:arrived      HASH    source -> its latest entry that has arrived here
-- KEYS[3]   ready      {queue.p.x}:ready        STREAM
-- KEYS[4]   front      {queue.p.x}:front        STREAM
-- KEYS[5]   priority   {queue.p.x}:priority     ZSET    score: see parts/ranks
-- KEYS[6]   due        {queue.p.x}:due          ZSET    score: due time, ms
-- KEYS[7]   unhandled  {queue.p.x}:unhandled    ZSET
-- KEYS[8]   waiting    {queue.p.x}:waiting      HASH    member -> body
-- KEYS[9]   unique     {queue.p.x}:unique       HASH    unique member -> id, and id -> member
-- KEYS[10]  claims     {queue.p.x}:claims       HASH    see waiting_claim
-- KEYS[11]  cancels    {queue.p.x}:cancels      ZSET
-- KEYS[12]  dead       {queue.p.x}:dead         STREAM
-- KEYS[13]  dead ids   {queue.p.x}:dead-ids     HASH    message id -> entry of `dead`
-- KEYS[14]  groups     {queue.p.x}:dead-groups  HASH    see parts/dead_letters
-- KEYS[15]  permits    {queue.p.x}:permits      ZSET    see parts/tokens
-- KEYS[16]  notes      {queue.p.x}:step-notes   HASH    see parts/step_notes
-- ARGV[1]  group
-- ARGV[2]  source     the tag of the partition from which they come
-- then for each, in the order of `moving`: its entry there, the number of fields and values, and these: see
-- repartition_take
--
-- Returns the number of those that were written; or 'OPEN' if the partition is not closed: nothing is.

-- with types
-- with clock
-- with ranks
-- with stream_state
-- with dead_letters
-- with waiting_members
-- with tokens
local control, arrived, ready, front, priority, due, unhandled, waiting = unpack(KEYS, 1, 8)
local unique, claims, cancels, dead, ids, groups, permits, notes = unpack(KEYS, 9, 16)
local group, source = ARGV[1], ARGV[2]

check_types({ [control] = 'hash', [arrived] = 'hash', [ready] = 'stream', [front] = 'stream' })
check_types({ [priority] = 'zset', [due] = 'zset', [unhandled] = 'zset', [waiting] = 'hash', [unique] = 'hash' })
check_types({ [claims] = 'hash', [cancels] = 'zset', [dead] = 'stream', [ids] = 'hash', [permits] = 'zset' })
check_types({ [notes] = 'hash' })
if redis.call('hget', control, 'partitions') ~= 'closed' then
  return 'OPEN'
end

local now, number = now_ms(), 0

-- Store the body of a message that waits, and return its member: another one if its own is in use here.
local function keep_body(item, body)
  local member, id = item.name, item.id
  if redis.call('hsetnx', waiting, member, body) == 0 then
    if id ~= '' then
      return put_body(waiting, id, body)
    end
    repeat
      number = number + 1
      member = string.format('p:@%.0f-%d', now * 1000, number)
    until redis.call('hsetnx', waiting, member, body) == 1
  elseif id ~= '' and id ~= member then
    redis.call('hset', unique, member, id, id, member)
  end
  return member
end

local function keep_token(item, token)
  if item.token ~= '' then
    redis.call('zadd', permits, item.token, token)
  end
end

local function put_waiting_in(set, item, fields)
  local member = keep_body(item, fields[2])
  redis.call('zadd', set, item.score, member)
  if fields[3] == 'latest' and member == item.name then
    redis.call('hset', unique, latest_field(member), fields[4])
  end
  keep_token(item, 'm-' .. member)
end

local function put_entry(stream, item, fields)
  local entry = redis.call('xadd', stream, '*', unpack(fields))
  if stream == front then
    redis.pcall('xgroup', 'create', front, group, '0')
  end
  keep_token(item, token_of(stream, entry))
end

-- Dead letters keep the time at which they were buried, if none here is newer.
local function put_dead(item, fields)
  local entry = redis.pcall('xadd', dead, item.name, unpack(fields))
  if type(entry) == 'table' then
    entry = redis.call('xadd', dead, '*', unpack(fields))
  end
  if item.id ~= '' then
    redis.call('hset', ids, item.id, entry)
  end
  keep_token(item, 'd-' .. entry)
  count_dead(groups, dead, group_of(fields, 1, #fields), tonumber(string.match(entry, '^%d+')))
end

local function into(put, key)
  return function(item, fields)
    put(key, item, fields)
  end
end

local puts = {
  ready = into(put_entry, ready),
  front = into(put_entry, front),
  priority = function(item, fields)
    if is_aged(item.score) then
      increment(control, 'ranked', 0)
      redis.call('hsetnx', control, 'ageing', 0)
      redis.call('zadd', priority, item.score, keep_body(item, fields[2]))
      return
    end
    local level = -math.floor(item.score / BAND + 0.5)
    rank(priority, control, keep_body(item, fields[2]), level, 'ranked', 1)
  end,
  due = into(put_waiting_in, due),
  unhandled = into(put_waiting_in, unhandled),
  dead = put_dead,
  claim = function(item, fields)
    local id = string.match(fields[2], '^%d+:(.*)$')
    if id and redis.call('hsetnx', claims, 'k:' .. item.name, fields[2]) == 1 then
      redis.call('hset', claims, 'i:' .. id, item.name)
    end
  end,
  note = function(item, fields)
    redis.call('hsetnx', notes, item.name, fields[2])
    local latest = math.max(number_of(redis.call('hget', notes, '#')), number_of(string.match(fields[2], '^%d+')))
    redis.call('hset', notes, '#', string.format('%.0f', latest))
  end,
}

local written, at = 0, 3
local known = entry_id(redis.call('hget', arrived, source) or '0-0')
while at <= #ARGV do
  local entry, count = ARGV[at], tonumber(ARGV[at + 1])
  if is_before(known, entry_id(entry)) then
    local item, fields = {}, {}
    for n = at + 2, at + 17, 2 do
      item[ARGV[n]] = ARGV[n + 1]
    end
    for n = at + 18, at + 1 + count do
      fields[#fields + 1] = ARGV[n]
    end
    puts[item.state](item, fields)
    if item.claim ~= '' and redis.call('hsetnx', claims, 'k:' .. item.claim, item['until']) == 1 then
      redis.call('hset', claims, 'i:' .. item.id, item.claim)
    end
    if item.cancel ~= '' then
      redis.call('zadd', cancels, item.cancel, item.id)
    end
    redis.call('hset', arrived, source, entry)
    written = written + 1
  end
  at = at + 2 + count
end
return written
