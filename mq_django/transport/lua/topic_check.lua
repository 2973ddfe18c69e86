-- Find what other programs did to a group of a topic since the last check, and remember the group's position.
--
-- KEYS[1]  log      {topic}:log                 STREAM
-- KEYS[2]  control  {topic}:g:<group>:control   HASH    position: see parts/group_position; lost: entries removed before
--                                                       the group read them; damage: the last finding: when, ms, its
--                                                       kind and number; counted-by: the run id of the server of
--                                                       the last check
-- ARGV[1]  group
--
-- Returns for each finding {kind, stream, number of messages, from, to}, each once:
--   'MOVED'       XGROUP SETID moved the group from one entry to a later one. Up to 100 messages between are
--                 counted. Not found by the first check after a restart of Redis
--   'MOVED_BACK'  the same, to an earlier one
--   'LOST'        unread messages were removed, and not by the retention
--   'AHEAD'       the last id is far in the future

-- with clock
-- with types
-- with increment
-- with numbers
-- with stream_state
-- with group_position

-- Redis's count of the entries that a group has read. Redis writes reads to the append-only file, and sends them to
-- replicas, without this count. So after a restart or a failover, the count is missing or older than the last delivered
-- entry.

-- Return whether the count can be used: the server is that of the last check. Remember the server.
local function counts_reads(control, old)
  local info = redis.pcall('info', 'server')
  local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  local counted_by = redis.call('hget', control, 'counted-by')
  if not server or counted_by == server then
    return true
  end
  redis.call('hset', control, 'counted-by', server)
  return not old
end

-- Return how many entries the group has read, from the position of the last check and the entries of the log; nil if
-- that cannot be counted.
local function recounted_reads(log, state, old)
  local delivered, added, read = state.group['last-delivered-id'], state['entries-added'], nil
  if not old.delivered then
    return nil
  elseif delivered == old.delivered then
    read = old.read
  elseif sortable(delivered) > sortable(old.delivered) then
    local between, is_exact = entries_between(log, state, old.delivered, delivered)
    read = is_exact and old.read and old.read + between or nil
  end
  return read and read >= 0 and read <= added and read or nil
end

local log, control, group = KEYS[1], KEYS[2], ARGV[1]
local wrong = wrong_type({ [control] = 'hash' })
if wrong then
  return wrong
end
local state = stream_state(log, group)
local generation = redis.call('hget', control, 'log-generation')
if not state or not state.group or not generation or not string.match(generation, '^%d+$') then
  return {}
end
-- A write that Redis allows when memory is out. The writes after it are then allowed, too.
redis.call('hdel', control, '')
local now, findings, old = now_ms(), {}, position_of(control)
local function find(kind, count, from, to)
  findings[#findings + 1] = { kind, log, count, from or '', to or '' }
  redis.call('hset', control, 'damage', string.format('%.0f %s %.0f', now, kind, count))
end

local delivered, read, added = state.group['last-delivered-id'], state.group['entries-read'], state['entries-added']
local after = delivered
if state.group.pending > 0 then
  after = entry_before(redis.call('xpending', log, group)[2])
end

-- SETID forgets how many entries the group has read. So does reading up to entries that were deleted one by one.
local deleted = state['max-deleted-entry-id']
local back = old and old.delivered and sortable(delivered) < sortable(old.delivered)
local counts = counts_reads(control, old)
local forgot = counts and old and old.read and not read and sortable(deleted) <= sortable(old.delivered)
if not counts then
  read = recounted_reads(log, state, old)
  -- Without a number, Redis counts again when the group has read to the end of the log.
  redis.call('xgroup', 'setid', log, group, delivered, unpack(read and { 'entriesread', read } or {}))
elseif back or forgot then
  local from, to = old.delivered, delivered
  if back then
    from, to = to, from
  end
  local between, is_exact = entries_between(log, state, from, to)
  if back or between > 0 then
    find(back and 'MOVED_BACK' or 'MOVED', between, old.delivered, delivered)
  end
  if forgot and is_exact then
    -- From here Redis counts again.
    read = old.read + (back and -between or between)
    redis.call('xgroup', 'setid', log, group, delivered, 'entriesread', read)
  end
end

-- Unread entries that were removed. The retention counts those that it removes as `lost`.
local removed, lost = old and old.removed or 0, number_of(redis.call('hget', control, 'lost'))
local first = state['first-entry'] and state['first-entry'][1]
if read and (not first or sortable(delivered) < sortable(first)) then
  removed = math.max(0, added - read - state.length)
elseif read and delivered == state['last-generated-id'] then
  -- Redis 7.0 goes on to count removed entries as unread.
  removed = math.max(0, added - read)
end
local by_others = removed - (old and old.removed or removed) - (old and lost - old.lost or 0)
if by_others > 0 then
  lost = increment(control, 'lost', by_others)
  find('LOST', by_others)
end
local ahead = is_far_ahead(state, now)
if ahead and not (old and old.ahead) then
  find('AHEAD', 0)
end

local counts = { string.format('%.0f', removed), string.format('%.0f', lost), ahead and 1 or 0 }
local position = position_text(generation, after, delivered, read, unpack(counts))
if position ~= redis.call('hget', control, 'position') then
  redis.call('hset', control, 'position', position)
end
return findings
