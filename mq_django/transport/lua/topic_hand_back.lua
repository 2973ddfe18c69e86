-- Give deliveries of a topic's log back uncharged, before everything that is still in the log.
--
-- KEYS[1]  log        {topic}:log                   STREAM   kept: what is settled is acked, not deleted
-- KEYS[2]  control    {topic}:g:<group>:control     HASH     generation
-- KEYS[3]  ready      {topic}:g:<group>:ready       STREAM   read before the log, and waited for like it
-- ARGV[1]  group
-- ARGV[2]  consumer   must still hold each delivery
-- then the receipts: `<entry>@<generation>`
--
-- Returns the receipts of those that the consumer no longer holds; these are left as they are.

local log, control, ready = unpack(KEYS)
local found = redis.call('type', ready).ok
if found ~= 'none' and found ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. ready .. ' holds a ' .. found)
end

local generation = redis.call('hget', control, 'generation') or ''

-- A receipt is the entry and the generation it was delivered in: after a seek the same consumer may hold the same entry
-- again, and what the first pass has to say must not settle the second.
local function held(receipt)
  local entry, of = string.match(receipt, '^(.*)@(.*)$')
  if of == generation and #redis.call('xpending', log, ARGV[1], entry, entry, 1, ARGV[2]) == 1 then
    return entry
  end
end

-- What an entry leaves to its own id, the message's id and time, a copy must bring along.
local function identified(fields, entry)
  local there = {}
  for i = 1, #fields, 2 do
    there[fields[i]] = true
  end
  if not there.message and not there.id then
    table.insert(fields, 1, 'id')
    table.insert(fields, 2, entry)
  end
  if not there.message and not there.time then
    fields[#fields + 1] = 'time'
    fields[#fields + 1] = string.match(entry, '^%d+')
  end
  return fields
end

local stale = {}
for i = 3, #ARGV do
  local entry = held(ARGV[i])
  if entry then
    local read = redis.call('xrange', log, entry, entry)[1]
    redis.call('xack', log, ARGV[1], entry)
    if read then
      redis.call('xadd', ready, '*', unpack(identified(read[2], entry)))
    end
  else
    stale[#stale + 1] = ARGV[i]
  end
end
return stale
