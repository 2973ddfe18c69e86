-- Read the deliveries of an RSMQ queue that a consumer holds.
--
-- KEYS[1]  zset      {namespace}:<queue>             ZSET   score: when visible, ms
-- KEYS[2]  hash      {namespace}:<queue>:Q           HASH   attributes, bodies, counts
-- KEYS[3]  owners    {namespace}:<queue>:mq:owners   HASH   id -> consumer and receive count
-- KEYS[4]  notes     {namespace}:<queue>:mq:notes    HASH   id:free -> receives that are no attempts, and more
-- ARGV[1]  consumer
-- ARGV[2]  limit     messages
-- ARGV[3]  bodies    '1' to read them
--
-- Returns for each message: id, body or '', receive count, when it was first received, receives that are no attempts,
-- '1' or 'suspect' if it must run alone, its attempt history. Owner records of messages that another program has
-- received or deleted since are removed.

-- with receipts
-- with lists
local zset, hash, owners, notes = unpack(KEYS)
local receipts = rsmq_receipts(zset, hash, owners, ARGV[1])
local mine, all = {}, redis.call('hgetall', owners)
for at = 1, #all, 2 do
  local consumer, count = string.match(all[at + 1], '^(.*) (%d+)$')
  if consumer == ARGV[1] then
    if receipts.held(all[at] .. ':' .. count) then
      mine[#mine + 1] = all[at]
    else
      redis.call('hdel', owners, all[at])
    end
  end
end
table.sort(mine)
local reply = {}
for i = 1, math.min(#mine, tonumber(ARGV[2])) do
  local id = mine[i]
  local counts = redis.call('hmget', hash, id .. ':rc', id .. ':fr')
  local marks = redis.call('hmget', notes, id .. ':free', id .. ':alone', id .. ':story')
  local body = ARGV[3] == '1' and redis.call('hget', hash, id) or ''
  add_all(reply, id, body or '', counts[1], counts[2] or 0, marks[1] or 0, marks[2] or '', marks[3] or '')
end
return reply
