-- Return the first undelivered entries of a stream.
local function undelivered(stream, group, count)
  local last = '-'
  local groups = redis.pcall('xinfo', 'groups', stream)
  for _, found in ipairs(groups.err and {} or groups) do
    local name, delivered
    for at = 1, #found, 2 do
      name = found[at] == 'name' and found[at + 1] or name
      delivered = found[at] == 'last-delivered-id' and found[at + 1] or delivered
    end
    last = name == group and '(' .. delivered or last
  end
  -- No entry follows the largest id, and XRANGE fails after it.
  if last == '(18446744073709551615-18446744073709551615' then
    return {}
  end
  return redis.call('xrange', stream, last, '+', 'count', count)
end
