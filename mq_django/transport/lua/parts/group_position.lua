-- The position of a topic's group, as it was at the last check, in the field `position` of the group's control:
-- generation, the entry up to which all is settled, last delivered entry, entries read, unread entries that were removed,
-- lost, 1 if the last id is far ahead. If the consumer group is destroyed, it continues after the first of these entries.

-- Return the entry before an entry, so that a group that continues after it gets that entry again.
local function entry_before(entry)
  local ms, number = string.match(entry, '^(%d+)-(%d+)$')
  -- Larger numbers are not exact here. Then the messages of the same millisecond repeat.
  if number ~= '0' and #number < 16 then
    return ms .. '-' .. string.format('%.0f', number - 1)
  end
  return ms ~= '0' and #ms < 16 and string.format('%.0f', ms - 1) .. '-18446744073709551615' or '0-0'
end

local function position_text(generation, after, delivered, read, removed, lost, ahead)
  return table.concat({ generation, after, delivered or '-', read or '-', removed or 0, lost or 0, ahead or 0 }, ' ')
end

-- Return the position, or nil if there is none of this generation: the group was created anew since.
local function position_of(control)
  local found = redis.call('hmget', control, 'position', 'log-generation')
  local generation, after, delivered, read, removed, lost, ahead =
    string.match(found[1] or '', '^(%d+) (%d+%-%d+) ([%d-]+) ([%d-]+) (%d+) (%d+) (%d)$')
  local is_short = generation and #after <= 41 and #delivered <= 41 and #read < 15 and #removed < 16 and #lost < 16
  if is_short and generation == found[2] then
    delivered = string.match(delivered, '^%d+%-%d+$')
    return {
      after = after, delivered = delivered, read = delivered and tonumber(read), removed = tonumber(removed),
      lost = tonumber(lost), ahead = ahead == '1',
    }
  end
end
