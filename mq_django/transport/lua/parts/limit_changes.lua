-- with numbers
-- Limits that people have changed at run time: the field `limits` of `control`, a JSON object from the name of a limit,
-- 'rate', 'concurrency', 'key_rate' or 'key_concurrency', to an object:
--   most      deliveries in a period, or at once; 0: no limit
--   seconds   of a rate: the period
-- and for people who, reason, since.

-- No limit, as a number: grants and tokens are noted nevertheless, because they count when the limit is back.
local NO_LIMIT = 1000000000

-- Return the changes, of which there are none in a text that another program has written.
local function limit_changes(text)
  local is_done, found = pcall(cjson.decode, short(text))
  return is_done and type(found) == 'table' and found or {}
end

local function is_count(value, least)
  return type(value) == 'number' and value >= least and value < 9007199254740992 and value % 1 == 0
end

-- Return a limit, and its window in microseconds: what is given, which is of the settings, or as it was changed. A limit
-- that the settings do not have stays away: without any, consumers read the queue in another way.
local function limit_now(changes, name, most, width)
  local change = most > 0 and changes[name]
  if type(change) ~= 'table' or not is_count(change.most, 0) then
    return most, width
  end
  if change.most == 0 then
    return NO_LIMIT, width
  end
  if not width then
    return change.most
  end
  if not is_count(change.seconds, 1) then
    return most, width
  end
  return change.most, change.seconds * 1000000
end
