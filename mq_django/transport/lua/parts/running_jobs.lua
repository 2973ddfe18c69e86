-- Return the fields and values of those of the background jobs that are running. A key of another type is no job.
local function running_jobs(...)
  local found = {}
  for _, job in ipairs({ ... }) do
    if redis.pcall('hget', job, 'state') == 'running' then
      found[#found + 1] = redis.call('hgetall', job)
    end
  end
  return found
end
