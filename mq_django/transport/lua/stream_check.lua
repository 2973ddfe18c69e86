-- Find what other programs did to a queue's streams since the last check.
--
-- KEYS[1]  control  {queue}:control   HASH     check:<n>: the state of a stream at the last check; grouped: the group of
--                                              `ready` exists; damage: the last finding: when, ms, its kind and number
-- KEYS[2]  and on   the streams from which deliveries are read, whose settled entries are deleted
-- ARGV[1]  group
--
-- Returns for each finding {kind, stream, number of messages}, each once:
--   'DELETED'  the stream was deleted with undelivered messages
--   'TRIMMED'  undelivered messages were trimmed
--   'REMOVED'  messages were removed while consumers hold them
--   'SKIPPED'  messages before the group's position are neither delivered nor deleted; up to 100 are counted
--   'AHEAD'    the last id is far in the future

-- with clock
-- with numbers
-- with short_texts
-- with types
-- with stream_state
local control, group = KEYS[1], ARGV[1]
local wrong = wrong_type({ [control] = 'hash' })
if wrong then
  return wrong
end
local now, findings, damage = now_ms(), {}, nil

-- Return the first message that was skipped, and how many there are. In steady state all entries up to the last
-- delivered one are pending, and nothing is between them.
local function skipped(stream, delivered, pending)
  local rows = pending > 0 and redis.call('xpending', stream, group, '-', '+', 50) or {}
  local after, first, count = '-', nil, 0
  for at = 1, #rows < 50 and #rows + 1 or #rows do
    local until_id = rows[at] and '(' .. rows[at][1] or delivered
    if after ~= '(' .. delivered then
      if redis.call('xrange', stream, after, until_id, 'count', 1)[1] then
        local entries = redis.call('xrange', stream, after, until_id, 'count', 100)
        first, count = first or entries[1][1], math.min(100, count + #entries)
      end
      after = rows[at] and '(' .. rows[at][1] or after
    end
  end
  return first or '-', count
end

local function check(n, stream, old)
  local function find(kind, count, again)
    damage = string.format('%.0f %s %.0f', now, kind, count)
    if not again then
      findings[#findings + 1] = { kind, stream, count }
    end
  end
  local state = stream_state(stream, group)
  if not state or not state.group then
    if not state and old.undelivered > 0 then
      find('DELETED', old.undelivered)
    end
    return ''
  end
  if n == 2 then
    redis.call('hsetnx', control, 'grouped', 1)
  end
  local pending, delivered = state.group.pending, state.group['last-delivered-id']
  local new = { added = state['entries-added'], removed = pending, ahead = 0, told = '-' }
  if state.length > 0 and pending > 0 then
    new.removed = #redis.call('xpending', stream, group, '-', '(' .. state['first-entry'][1], 1000)
  end
  new.undelivered = math.max(0, state.length - pending + new.removed)
  -- Fails after the largest id.
  local ready = redis.pcall('xrange', stream, '(' .. delivered, '+', 'count', 1)
  new.first = ready[1] and ready[1][1] or '-'

  -- XTRIM does not change the largest deleted id. XDEL does, and is also how a purge deletes.
  local deleted = state['max-deleted-entry-id']
  local was = old.first ~= '-' and sortable(old.first)
  local is_known = was and was <= sortable(state['last-generated-id'])
  local gone = is_known and sortable(delivered) < was and sortable(deleted) < was
  gone = gone and redis.pcall('xrange', stream, old.first, old.first)
  if gone and not gone.err and #gone == 0 then
    find('TRIMMED', math.max(1, old.undelivered + new.added - old.added - new.undelivered))
  elseif new.removed > old.removed then
    find('REMOVED', new.removed - old.removed)
  end

  local count
  new.skipped, count = skipped(stream, delivered, pending)
  if new.skipped ~= '-' and new.skipped == old.skipped then
    -- Seen twice: some programs ack and delete in two steps.
    find('SKIPPED', count, old.told == old.skipped)
    new.told = new.skipped
  end
  if is_far_ahead(state, now) then
    new.ahead = 1
    find('AHEAD', 0, old.ahead == 1)
  end
  if state.length == 0 and pending == 0 and new.ahead == 0 then
    return ''
  end
  return string.format(
    '%s %.0f %.0f %.0f %s %s %d', new.first, new.undelivered, new.added, new.removed, new.skipped, new.told, new.ahead
  )
end

local function parsed(text)
  local values = {}
  for word in string.gmatch(short(text), '%S+') do
    values[#values + 1] = word
  end
  local function id(at)
    local found = string.match(values[at] or '', '^%d+%-%d+$')
    return found and #found <= 41 and found or '-'
  end
  local function count(at)
    return number_of(string.match(values[at] or '', '^%d+$'))
  end
  return {
    first = id(1), undelivered = count(2), added = count(3), removed = count(4),
    skipped = id(5), told = id(6), ahead = count(7),
  }
end

-- A write that Redis allows when memory is out. The writes after it are then allowed, too.
redis.call('hdel', control, '')
for n = 2, #KEYS do
  local field = 'check:' .. n - 2
  local text = redis.call('hget', control, field)
  local state = check(n, KEYS[n], parsed(text))
  if state == '' and text then
    redis.call('hdel', control, field)
  elseif state ~= '' and state ~= text then
    redis.call('hset', control, field, state)
  end
end
if damage then
  redis.call('hset', control, 'damage', damage)
end
return findings
