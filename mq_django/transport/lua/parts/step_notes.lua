-- with clock
-- with numbers
-- Notes about the messages of workflows' steps, for the run: it is in another hash slot, so that a script cannot change
-- it. A field of the hash is the message's id, and its value: number, event, added steps or '-', and a value or reason.
-- The latest event replaces an earlier one, but nothing replaces that a step is done. '#' is the latest number; numbers
-- only increase. Without `notes` nothing is noted: messages that are no steps must not wait for a key of another type.
local function note_step(notes, id, event, added, detail)
  if not notes or string.sub(id, 1, 2) ~= 'w:' then
    return
  end
  local known = redis.call('hget', notes, id)
  if known and string.match(known, '^%d+ done ') then
    return
  end
  local number = math.max(number_of(redis.call('hget', notes, '#')) + 1, now_us())
  local text = string.format('%.0f %s %s ', number, event, added == '' and '-' or added) .. detail
  redis.call('hset', notes, '#', string.format('%.0f', number), id, text)
end
