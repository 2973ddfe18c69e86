-- Append the ids of messages that have ended, for the outboxes that keep their rows until then. What is older than a day
-- is deleted, whoever has not read it.
--
-- KEYS[1]  ended   {queue}:ended   STREAM   fields of an entry: the ids of messages, without values
-- KEYS[2]  stream  {queue}:ready, :urgent or :log   STREAM   of the deliveries; optional
-- ARGV     ids, at most 500; with a stream: see ids_of_held in parts/held
--
-- Returns 'ADDED'; or 'SKIPPED' if there is nothing to add, or the key has another type: no error, because the messages
-- end all the same.

-- with clock
-- with held
-- with types
local ended, fields = KEYS[1], {}
if wrong_type({ [ended] = 'stream' }) then
  return 'SKIPPED'
end
for _, id in ipairs(ids_of_held(KEYS[2], ARGV)) do
  fields[#fields + 1] = id
  fields[#fields + 1] = ''
end
if #fields == 0 then
  return 'SKIPPED'
end
-- First, because Redis allows it when memory is out. The write after it is then allowed, too.
redis.call('xdel', ended, '0-1')
redis.call('xadd', ended, 'minid', '~', string.format('%.0f', now_ms() - 86400000), '*', unpack(fields))
return 'ADDED'
