-- Read messages for a consumer. The script has named its group, its consumer, and its homes: `ready` first, then
-- `urgent`. `lead` is how many of `urgent` were read before `ready` was: these go before it, the others behind it.
local taken, lead, failed = { {}, {}, {} }, nil, nil

-- Read a home and return how many may still be taken.
local function read(home, count)
  if count <= 0 or (home == 2 and redis.call('exists', homes[2]) == 0) then
    return count
  end
  lead = lead or home == 1 and #taken[2] or nil
  -- An error must not lose what was taken before it: its consumer would hold that unseen.
  local reply = redis.pcall('xreadgroup', 'group', group, consumer, 'count', count, 'streams', homes[home], '>')
  failed = reply and reply.err and reply or failed
  local found = reply and reply[1] and reply[1][2] or {}
  if #taken[home] == 0 then
    taken[home] = found
  else
    for _, entry in ipairs(found) do
      table.insert(taken[home], entry)
    end
  end
  return count - #found
end

-- Run something and return what it does, or nothing when it fails: what was taken before is not lost by that.
local function careful(run, ...)
  local done, found = pcall(run, ...)
  if done then
    return found
  end
  failed = type(found) == 'table' and found or redis.error_reply(found)
end

-- What was taken, or the error when nothing was.
local function all_taken(ranked)
  if failed and #taken[1] + #taken[2] == 0 then
    return failed
  end
  return { taken[1], taken[2], ranked, lead or #taken[2] }
end
