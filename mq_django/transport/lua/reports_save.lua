-- Save what runs of handlers report. A run that a later one of its message has replaced saves nothing.
--
-- KEYS     progress   {queue}:progress:<id>   HASH   run, data, progress, positions
-- ARGV for each: the run; 1 if it replaces an earlier run, else 0; the time to live in ms; the progress as JSON text, or
-- '' to keep it; the positions as JSON text, '' to keep them, or '-' to delete them
--
-- Returns for each: 1 if it is saved, 0 if a later run has replaced it, -1 if the key has another type.

-- with types
local argv, saved = ARGV, {}
for i, key in ipairs(KEYS) do
  local at = 5 * (i - 1)
  local run, replaces, ttl, progress, positions = unpack(argv, at + 1, at + 5)
  if wrong_type({ [key] = 'hash' }) then
    saved[i] = -1
  else
    local known = redis.call('hget', key, 'run')
    if known and known ~= run and replaces ~= '1' then
      saved[i] = 0
    else
      -- First, because Redis allows it when memory is out. The writes after it are then allowed, too.
      redis.call('hdel', key, positions == '-' and 'positions' or '')
      redis.call('hset', key, 'run', run)
      if progress ~= '' then
        redis.call('hset', key, 'progress', progress)
      end
      if positions ~= '' and positions ~= '-' then
        redis.call('hset', key, 'positions', positions)
      end
      if positions == '-' and redis.call('hexists', key, 'progress') == 0 then
        redis.call('del', key)
      else
        redis.call('pexpire', key, ttl)
      end
      saved[i] = 1
    end
  end
end
return saved
