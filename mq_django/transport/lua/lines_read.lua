-- Read the line of a key: its first parked messages, and where its messages with a token are. Changes
-- nothing.
--
-- KEYS[1]  parked     {queue}:parked     ZSET    see parts/line_keys
-- KEYS[2]  permits    {queue}:permits    ZSET    see parts/tokens
-- KEYS[3]  waiting    {queue}:waiting    HASH    member -> body
-- KEYS[4]  unique     {queue}:unique     HASH    member -> id
-- KEYS[5]  due        {queue}:due        ZSET    score: due time, ms
-- KEYS[6]  unhandled  {queue}:unhandled  ZSET
-- KEYS[7]  ready      {queue}:ready      STREAM
-- KEYS[8]  front      {queue}:front      STREAM
-- KEYS[9]  dead       {queue}:dead       STREAM
-- ARGV[1]  group
-- ARGV[2]  hash       of the key
-- ARGV[3]  count      maximum messages, and maximum tokens, up to 100
-- ARGV[4]  bytes      a longer value is replaced by its length
--
-- Returns {now in ms, parked messages, tokens, listed messages, then for each of these: member, {field, value, ...}; then
-- for each listed token: token, place, the consumer or the due time, ms since the delivery, {field, value, ...} or
-- {body, id}}. The place is `pending`, `ready`, `due`, `unhandled`, `held`, `dead`, or `gone` if the message is not there.

-- with clock
-- with line_fields
-- with lists
-- with pages
local parked, permits, waiting, unique, due, unhandled, ready, front, dead = unpack(KEYS)
local group, hash, count, longest = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local function shortened(body)
  return #body > longest and #body or body
end

local function entry_of(stream, entry)
  local found = redis.call('xrange', stream, entry, entry)[1]
  return found and truncate(found[2], longest)
end

-- Return where the message of a token is, as in the reply.
local function place_of(token)
  local kind, name = string.match(token, '^(.)%-(.*)$')
  if kind == '0' or kind == '1' then
    local stream = kind == '1' and front or ready
    local fields = entry_of(stream, name)
    local pending = redis.pcall('xpending', stream, group, name, name, 1)
    if not pending.err and pending[1] then
      return 'pending', pending[1][2], pending[1][3], fields or {}
    end
    return fields and 'ready' or 'gone', '', 0, fields or {}
  elseif kind == 'm' then
    local body = { shortened(redis.call('hget', waiting, name) or ''), redis.call('hget', unique, name) or name }
    local due_ms = redis.call('zscore', due, name)
    if due_ms then
      return 'due', due_ms, 0, body
    elseif redis.call('zscore', unhandled, name) then
      return 'unhandled', '', 0, body
    elseif redis.call('zscore', parked, name) then
      return 'held', '', 0, body
    end
  elseif kind == 'd' then
    local fields = entry_of(dead, name)
    return fields and 'dead' or 'gone', '', 0, fields or {}
  end
  return 'gone', '', 0, {}
end

local members = redis.call('zrangebyscore', parked, hash, hash, 'limit', 0, count)
local reply = {
  now_ms(), redis.call('zcount', parked, hash, hash), redis.call('zcount', permits, hash, hash), #members
}
for _, member in ipairs(members) do
  local body = redis.call('hget', waiting, member)
  local fields = body and fields_in(body, redis.call('hget', unique, member) or member)
  add_all(reply, member, fields and truncate(fields, longest) or {})
end
for _, token in ipairs(redis.call('zrangebyscore', permits, hash, hash, 'limit', 0, count)) do
  local is_known, place, detail, held_ms, found = pcall(place_of, token)
  if not is_known then
    place, detail, held_ms, found = 'gone', '', 0, {}
  end
  add_all(reply, token, place, detail, held_ms, found)
end
return reply
