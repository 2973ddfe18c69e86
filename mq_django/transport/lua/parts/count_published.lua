-- with count
-- Count published messages by name.
local function count_published(minutes, minute, hours, hour, counts)
  count(minutes, minute, hours, hour, 'published', counts)
end
