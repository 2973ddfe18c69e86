-- Return an error if a hash has too many fields to read all of them for a page, else nil. A page of all queues then
-- shows the others.
local function too_long(...)
  for _, key in ipairs({ ... }) do
    local fields = redis.pcall('hlen', key)
    if type(fields) == 'number' and fields > 10000 then
      return redis.error_reply(string.format('ERR the hash %s has %d fields, and at most 10000 are read', key, fields))
    end
  end
end

-- Return the values of the counters in `key` whose fields are these arguments of the script.
local function counters(key, first, last)
  return first > last and {} or redis.call('hmget', key, unpack(ARGV, first, last))
end
