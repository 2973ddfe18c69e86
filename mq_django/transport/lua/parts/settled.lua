-- with clock
-- with count
-- with named
-- What is written about deliveries once they are settled, in the same script: so of a refused outcome nothing stays, and
-- each is counted once, however often a batch is sent again. Nothing here may keep a delivery: what cannot be written is
-- left out. `settled` has the numbers of the deliveries, in their order.

-- Count deliveries. counters: the minute of the hour, the hour of the day; for each run of deliveries, in their order, how
-- many, their name, and what they count as, such as 'handled t3'. counts: what else is counted: the kind, the name, how many.
local function count_settled(at, list, more, settled)
  local counts, next_one, upto = {}, 1, 0
  for k = 3, list.size, 3 do
    local name, kinds = unpack(ARGV, list.before + k + 1, list.before + k + 2)
    upto = upto + tonumber(ARGV[list.before + k])
    local first = next_one
    while settled[next_one] and settled[next_one] <= upto do
      next_one = next_one + 1
    end
    for kind in string.gmatch(next_one > first and kinds or '', '%S+') do
      counts[kind] = counts[kind] or {}
      counts[kind][name] = (counts[kind][name] or 0) + next_one - first
    end
  end
  for k = 1, more and more.size or 0, 3 do
    local kind, name, number = unpack(ARGV, more.before + k, more.before + k + 2)
    counts[kind] = counts[kind] or {}
    counts[kind][name] = (counts[kind][name] or 0) + number
  end
  local minute, hour = ARGV[list.before + 1], ARGV[list.before + 2]
  for kind, by_name in pairs(counts) do
    count(at.minutes, minute, at.hours, hour, kind, by_name)
  end
end

-- Write all but the counters: what most batches do not need is made only here.
local function write_more(at, lists, named, settled)
-- with claims
-- with ended
-- with increment
-- with waiters
  -- Keep the histories of messages: handled: ttl in ms, then for each its delivery's number and the line of JSON.
  local function add_history(at, lists, is_settled)
    local list, lines, entry = lists.handled, {}, nil
    local handled, ids = usable(at.handled, 'stream'), usable(at['handled-ids'], 'hash')
    if not handled or not ids then
      return
    end
    local ttl, added = ARGV[list.before + 1], 0
    local function add()
      entry = redis.pcall('xadd', handled, '*', unpack(lines))
      local index = {}
      for i = 1, #lines, 2 do
        index[i], index[i + 1] = 'i:' .. lines[i], entry
      end
      if type(entry) == 'string' then
        redis.pcall('hset', ids, unpack(index))
        added = added + #lines / 2
      end
      lines = {}
    end
    for k = 2, list.size, 2 do
      local i = tonumber(ARGV[list.before + k])
      if is_settled[i] then
        lines[#lines + 1] = ARGV[lists.ids.before + i]
        lines[#lines + 1] = ARGV[list.before + k + 1]
        -- An entry has at most 100 messages: one that is read is in memory at once.
        if #lines == 200 then
          add()
        end
      end
    end
    if #lines > 0 then
      add()
    end
    if added > 0 then
      increment(ids, 'total', added)
      redis.pcall('pexpire', handled, ttl)
      redis.pcall('pexpire', ids, ttl)
    end
  end

  -- Append outcomes to the results of tasks, and tell the processes that wait for those that have ended. results: for each
  -- its delivery's number; the line for the task, written if the result does not exist; the line for the attempt; the time
  -- to live in ms. Their keys follow the named ones, and the last key is that of waiters, which may be missing. channel: of
  -- processes, without the process at its end.
  local function append_results(lists, named, is_settled)
    local try, list = redis.pcall, lists.results
    local waiters = KEYS[named + list.size / 4 + 1]
    local is_awaited = waiters and redis.call('exists', waiters) == 1
    for k = 1, list.size / 4 do
      local key, task, attempt, ttl = KEYS[named + k], unpack(ARGV, list.before + 4 * k - 2, list.before + 4 * k)
      if is_settled[tonumber(ARGV[list.before + 4 * k - 3])] then
        local length = try('append', key, attempt)
        if length == #attempt then
          try('set', key, task .. attempt, 'px', ttl)
        elseif type(length) ~= 'table' then
          try('pexpire', key, ttl)
        end
        if is_awaited and ends_task(attempt) then
          tell_waiters(waiters, ARGV[lists.channel.before + 1], key)
        end
      end
    end
  end

  -- Remember the ids of messages that are discarded because they have expired: of the last week, at most 10,000.
  local function remember_expired(expired, ids, now)
    local try, week = redis.pcall, 604800000
    try('zremrangebyscore', expired, '-inf', now - week)
    for _, id in ipairs(ids) do
      try('zadd', expired, 'nx', now, id)
    end
    try('zremrangebyrank', expired, 0, -10001)
    try('pexpire', expired, week)
  end

  local is_settled, ids = {}, {}
  for n, i in ipairs(settled) do
    is_settled[i] = true
    ids[n] = lists.ids and ARGV[lists.ids.before + i]
  end
  for k = 1, lists.claims and lists.claims.size or 0 do
    local i = tonumber(ARGV[lists.claims.before + k])
    if is_settled[i] then
      release_claim(at.claims, ARGV[lists.ids.before + i])
    end
  end
  if at.expired and usable(at.expired, 'zset') then
    remember_expired(at.expired, ids, now_ms())
  end
  if at.ended and usable(at.ended, 'stream') then
    add_ended(at.ended, ids)
  end
  if lists.results then
    append_results(lists, named, is_settled)
  end
  if lists.handled then
    add_history(at, lists, is_settled)
  end
end
