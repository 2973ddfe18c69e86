-- Apply what has happened to a run of a workflow, and start the steps that may start now.
--
-- KEYS[1]   run      {workflows.x}:run:<run>      HASH    state, policy, round, counts, callbacks, times
-- KEYS[2]   steps    {workflows.x}:steps:<run>    HASH    number -> record: see read_step
-- KEYS[3]   bodies   {workflows.x}:bodies:<run>   HASH    number -> what is published; of the steps with a task
-- KEYS[4]   after    {workflows.x}:after:<run>    HASH    number -> ranges of the steps that wait for it
-- KEYS[5]   values   {workflows.x}:values:<run>   HASH    number -> the value that its task has returned
-- KEYS[6]   work     {workflows.x}:work:<run>     LIST    what is still to be done: an operation and ranges of steps
-- KEYS[7]   held     {workflows.x}:held:<run>     LIST    numbers of steps that may start when the run continues
-- KEYS[8]   starts   {workflows.x}:starts         STREAM  what is to be published
-- KEYS[9]   alive    {workflows.x}:alive          ZSET    runs that have not ended; score: when they expire, ms
-- KEYS[10]  index    {workflows.x}:index          ZSET    all runs; score: when they were started, ms
-- KEYS[11]  unique   {workflows.x}:unique         HASH    unique key -> run
-- KEYS[12]  busy     {workflows.x}:busy           ZSET    runs with work left; score: when it was left, ms
-- ARGV[1]   run
-- ARGV[2]   how many steps this call may change
-- ARGV[3]   how long a run is kept after its end, ms
-- then for each event, in order: its name, a step's number, the number of its note, a value or reason, a range, the
--   round of the step's message, or of the run, that it is about
--
-- Returns {'OK', state of the run, 1 if work is left, what operators have changed: numbers of steps, 0 for the run; and for
-- each start: entry, step, round, body}; {'TAKEN', run that has the unique key}: this one is deleted; or {'MISSING'}: there
-- is no such run.

-- with types
-- with clock
-- with lists
-- with numbers
-- The steps of a run of a workflow. The record of a step is a field of the hash `steps`, under the step's number:
--   state waits bad seq round kind began
-- state: B not committed, W waits, H held because the run has ended, S started, D done, F failed, K skipped, P passed
--   by an operator; waits: how many steps it waits for; bad: how many of these have failed or were skipped; seq: the
--   number of the latest note about its message; round: the run's round in which it was started; kind: 't' a task,
--   'j' a join: it has no message, and is done when the steps that it waits for are done; began: when it was started
--   last, in ms, or 0.
local function read_step(steps, number)
  local text = redis.call('hget', steps, number) or ''
  local state, waits, bad, seq, round, kind, began =
    string.match(text, '^(%u) (%d+) (%d+) (%d+) (%d+) (%l) (%d+)$')
  if state then
    return {
      number = number,
      state = state,
      waits = number_of(waits),
      bad = number_of(bad),
      seq = number_of(seq),
      round = number_of(round),
      kind = kind,
      began = number_of(began),
    }
  end
end

local function write_step(steps, step)
  local counted = string.format('%d %d %.0f %d', step.waits, step.bad, step.seq, step.round)
  redis.call('hset', steps, step.number, string.format('%s %s %s %.0f', step.state, counted, step.kind, step.began))
end

-- Whether nothing will change a step's state but an operator.
local function is_over(step)
  return step.state == 'D' or step.state == 'P'
end
local run, steps, bodies, after, values, work, held, starts, alive, index, unique, busy = unpack(KEYS)
local id, budget, keep_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call

check_types({ [run] = 'hash', [steps] = 'hash', [bodies] = 'hash', [after] = 'hash', [values] = 'hash' })
check_types({ [work] = 'list', [held] = 'list', [starts] = 'stream', [alive] = 'zset', [index] = 'zset' })
check_types({ [unique] = 'hash', [busy] = 'zset' })

local own_keys = { run, steps, bodies, after, values, work, held }
local fields = { 'state', 'policy', 'round', 'total', 'done', 'failed', 'skipped', 'flying', 'lasts', 'bytes' }
local known = call('hmget', run, unpack(fields))
local state, policy, now, started, changed = known[1], known[2], now_ms(), {}, {}
local round, total, done = math.max(1, number_of(known[3])), number_of(known[4]), number_of(known[5])
local failed, skipped, flying = number_of(known[6]), number_of(known[7]), number_of(known[8])
local lasts, bytes = number_of(known[9]), number_of(known[10])
if not state then
  return { 'MISSING' }
end

local function publish_later(step, of_round, body)
  local entry = call('xadd', starts, '*', 'run', id, 'step', step, 'round', of_round)
  add_all(started, entry, step, of_round, body)
end

local function call_back(kind)
  local body = call('hget', run, 'on_' .. kind)
  if body then
    publish_later(kind, round, body)
  end
end

-- End the round of the run: nothing starts any more until an operator lets it continue.
local function finish(ended_as)
  state = ended_as
  call('hset', run, 'state', state, 'finished', string.format('%.0f', now))
  call('zrem', alive, id)
  local key = call('hget', run, 'unique')
  if key and call('hget', unique, key) == id then
    call('hdel', unique, key)
  end
  if state == 'succeeded' then
    call_back('success')
  elseif state ~= 'cancelled' then
    call_back('failure')
  end
  call_back('finish')
end

-- Take the unique key of the run, if it has one, or return another run that has it and has not ended.
local function take_key()
  local key = call('hget', run, 'unique')
  local holder = key and call('hget', unique, key)
  if holder and holder ~= id and call('zscore', alive, holder) then
    return holder
  end
  if key then
    call('hset', unique, key, id)
  end
end

-- Let a run continue that has ended. Its callbacks are published once more when it ends again. If another run has its
-- unique key by now, it continues without it: what an operator asks for is not refused.
local function reopen()
  if state == 'running' then
    return
  end
  state, round = 'running', round + 1
  local expires = string.format('%.0f', now + lasts)
  call('hset', run, 'state', state, 'round', round, 'expires', expires)
  call('hdel', run, 'finished')
  call('zadd', alive, expires, id)
  take_key()
  if call('llen', held) > 0 then
    call('rpush', work, 'H')
  end
end

local function push_work(operation, step)
  local ranges = call('hget', after, step.number)
  if ranges and ranges ~= '' then
    call('rpush', work, operation .. ' ' .. ranges)
  end
end

-- A step waits for nothing any more. Each case writes its record.
local function begin_step(step)
  if step.kind == 'j' then
    step.state = 'D'
    push_work('d', step)
  elseif state ~= 'running' then
    step.state = 'H'
    call('rpush', held, step.number)
  else
    local body = call('hget', bodies, step.number) or ''
    -- Notes about the new message have numbers of their own.
    step.state, step.round, step.seq, step.began, flying = 'S', round, 0, now, flying + 1
    publish_later(step.number, round, body)
    -- The reply has the bodies.
    budget = budget - math.floor(#body / 4096)
  end
  write_step(steps, step)
end

-- Begin a step if it waits for nothing, else write its record.
local function begin_or_write(step)
  if step.waits == 0 and step.bad == 0 and step.state == 'W' then
    begin_step(step)
  else
    write_step(steps, step)
  end
end

local function is_task(step)
  return step.kind == 't' and 1 or 0
end

-- A step is affected by one that it waits for. Each of these writes its record.
local changes = {
  -- That one is done.
  d = function(step)
    step.waits = math.max(0, step.waits - 1)
    begin_or_write(step)
  end,
  -- That one has failed, or was skipped.
  b = function(step)
    step.bad = step.bad + 1
    if step.bad == 1 and step.state == 'W' then
      step.state, skipped = 'K', skipped + is_task(step)
      push_work('b', step)
    end
    write_step(steps, step)
  end,
  -- That one may still succeed, after all.
  g = function(step)
    step.bad = math.max(0, step.bad - 1)
    if step.bad == 0 and step.state == 'K' then
      step.state, skipped = 'W', skipped - is_task(step)
      push_work('g', step)
    end
    begin_or_write(step)
  end,
}

-- A step belongs to the run from now on.
function changes.c(step)
  step.state, total = 'W', total + is_task(step)
  begin_or_write(step)
end

-- A step that was started before starts with a new message. The message needs another id: queues take each only once.
local function begin_anew(step)
  if state == 'running' and step.round == round then
    round = round + 1
    call('hset', run, 'round', round)
  end
  begin_step(step)
end

-- The message of a failed step is under way again.
local function revive(step)
  step.state, failed, flying = 'S', failed - 1, flying + 1
  if policy == 'continue' then
    push_work('g', step)
  end
end

-- What has happened to the message of a step. The numbers of the notes about one message increase, and the latest one
-- counts: others may come later, several times, or never, because a note replaces the one before. So a failed step of
-- whose message something later is heard was redriven before.
local events = {}

function events.done(step, seq, value)
  if is_over(step) or step.state ~= 'S' and step.state ~= 'F' then
    return
  end
  if step.state == 'F' then
    revive(step)
    if state == 'failed' or seq > step.seq then
      reopen()
    end
  end
  flying = flying - 1
  step.state, step.seq, done = 'D', math.max(step.seq, seq), done + 1
  if value ~= '' then
    call('hset', values, step.number, value)
    bytes = bytes + #value
  end
  write_step(steps, step)
  push_work('d', step)
end

-- A message is back in its queue: its dead letter was redriven.
function events.redriven(step, seq)
  if is_over(step) or seq <= step.seq then
    return
  end
  step.seq = seq
  if step.state == 'F' then
    revive(step)
    reopen()
  end
  write_step(steps, step)
end

function events.failed(step, seq, reason)
  if step.state ~= 'S' and step.state ~= 'F' or seq <= step.seq then
    return
  end
  events.redriven(step, seq)
  step.state, flying, failed = 'F', flying - 1, failed + 1
  write_step(steps, step)
  call('hset', run, 'failure', step.number .. ' ' .. reason)
  if policy == 'continue' then
    push_work('b', step)
  elseif state == 'running' then
    finish('failed')
  end
end

-- A consumer has not run it, because the run had ended. It starts when the run continues.
function events.dropped(step, seq)
  if step.state ~= 'S' and step.state ~= 'F' or seq <= step.seq then
    return
  end
  events.redriven(step, seq)
  flying = flying - 1
  begin_anew(step)
end

-- An operator retries a failed step. It counts as started before its dead letter is redriven, so that the run does not
-- end between the steps of one retry. Nothing may have been heard of it since it was seen, here and below: `seq` and
-- the round are of the time then.
function events.retried(step, seq)
  if step.state == 'F' and step.seq == seq then
    revive(step)
    step.began = now
    write_step(steps, step)
    reopen()
    changed[#changed + 1] = step.number
  end
end

-- An operator starts a step with a new message, because its message is gone without a note.
function events.lost(step, seq)
  if step.state == 'S' and step.seq == seq then
    flying = flying - 1
    begin_anew(step)
  end
end

-- An operator lets the run continue as if the step were done. It has no value.
function events.passed(step)
  if step.state == 'F' then
    failed, done = failed - 1, done + 1
    step.state = 'P'
    if policy == 'continue' then
      push_work('g', step)
    end
    write_step(steps, step)
    push_work('d', step)
    reopen()
    changed[#changed + 1] = step.number
  end
end

-- What has happened to the whole run.
local function begin(range)
  local holder = take_key()
  if holder then
    call('del', unpack(own_keys))
    return holder
  end
  for _, name in ipairs(own_keys) do
    call('persist', name)
  end
  state = 'running'
  call('hset', run, 'state', state, 'started', string.format('%.0f', now), 'round', round)
  call('zadd', alive, string.format('%.0f', now + lasts), id)
  call('zadd', index, string.format('%.0f', now), id)
  call('rpush', work, 'c ' .. range)
end

local function apply(name, number, seq, value, range, of_round)
  of_round = tonumber(of_round)
  if name == 'begin' then
    return state == 'building' and begin(range) or nil
  elseif name == 'cancel' then
    if state == 'running' then
      finish('cancelled')
      changed[#changed + 1] = '0'
    end
  elseif name == 'expire' then
    -- It may have ended and continued since its caller has read when it expires.
    if state == 'running' and number_of(call('zscore', alive, id)) <= now then
      finish('expired')
    end
  elseif name == 'continue' then
    -- It may have continued and ended since its round was read. Nothing is left of one that has succeeded.
    if state ~= 'building' and state ~= 'succeeded' and of_round == round then
      reopen()
    end
  elseif state ~= 'building' then
    local step = read_step(steps, number)
    local was = step and step.state
    -- Of an earlier message of the step only its success counts.
    if step and events[name] and (name == 'done' or of_round == step.round) then
      events[name](step, tonumber(seq), value)
      if range ~= '' and was ~= step.state then
        call('rpush', work, 'c ' .. range)
        call('hset', run, 'added:' .. step.number, range)
      end
    end
  end
end

for at = 4, #ARGV, 6 do
  local holder = apply(unpack(ARGV, at, at + 5))
  if holder then
    return { 'TAKEN', holder }
  end
end

-- Return the first number of ranges such as '3-7,9', and the others.
local function first_of(ranges)
  local first, last, rest = string.match(ranges, '^(%d+)%-?(%d*),?(.*)$')
  if not first then
    return nil, ''
  end
  local following = last ~= '' and tonumber(last) > tonumber(first) and string.format('%d', first + 1) or nil
  if following then
    rest = (following == last and last or following .. '-' .. last) .. (rest ~= '' and ',' .. rest or '')
  end
  return first, rest
end

local function release_held()
  local number = state == 'running' and call('lpop', held)
  if not number then
    return false
  end
  local step = read_step(steps, number)
  if step and step.state == 'H' then
    begin_step(step)
  end
  return true
end

local item = call('lindex', work, 0)
while item and budget > 0 do
  local operation, ranges = string.match(item, '^(%l) (.*)$')
  while budget > 0 and (item == 'H' and release_held() or operation and ranges ~= '') do
    budget = budget - 1
    if operation then
      local number
      number, ranges = first_of(ranges)
      local step = number and read_step(steps, number)
      if step and (operation == 'c') == (step.state == 'B') then
        changes[operation](step)
      end
    end
  end
  if budget > 0 then
    call('lpop', work)
    item = call('lindex', work, 0)
  elseif operation then
    call('lset', work, 0, operation .. ' ' .. ranges)
  end
end

local left = call('llen', work)
if left == 0 and flying == 0 and state == 'running' then
  finish(done == total and 'succeeded' or 'failed')
end
call('hset', run, 'total', total, 'done', done, 'failed', failed, 'skipped', skipped, 'flying', flying, 'bytes', bytes)
if left > 0 then
  call('zadd', busy, string.format('%.0f', now), id)
else
  call('zrem', busy, id)
end
for _, name in ipairs(own_keys) do
  if state == 'running' then
    call('persist', name)
  elseif state ~= 'building' then
    call('pexpire', name, keep_ms)
  end
end
return { 'OK', state, left > 0 and 1 or 0, changed, unpack(started) }
