-- Ask for a share of the limits that the partitions of a queue have in common, and say what became of the last one.
--
-- KEYS[1]  limits   {queue}:limits   HASH    'r': grant log; 't': the latest time at which a consumer may ask again; 'w':
--                                            until when a consumer may be waiting, ms
-- KEYS[2]  shares   {queue}:shares   HASH    consumer -> deliveries that it holds or may fetch ':' until when that counts, ms
-- KEYS[3]  control  {queue}:control  HASH    limits: see parts/limit_changes; without it they are as in the settings
-- ARGV[1..3]        as in the settings: deliveries per window, window in microseconds, concurrent deliveries; 0: no limit
-- ARGV[4]  consumer
-- ARGV[5]  held     deliveries that it holds
-- ARGV[6]  wanted   deliveries that it wants to fetch; 0: none
-- ARGV[7]  unused   grants of its last share for which it has fetched nothing
-- ARGV[8]  turn     when the last reply told it to ask again, or 0
-- ARGV[9]  ttl      ms for which its share counts, if it does not ask again
-- ARGV[10] channel  on which consumers hear that there is something
--
-- Returns {granted, microseconds until it may ask again or -1 if it will be told, turn}.

-- with types
-- with clock
-- with limit_changes
-- with windows
local limits, shares = KEYS[1], KEYS[2]
local rate, width, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local consumer, held, wanted, unused = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local turn, ttl = tonumber(ARGV[8]), tonumber(ARGV[9])
-- For how long a consumer waits at most, ms, and a little more.
local WAIT_MS = 6000

check_types({ [limits] = 'hash', [shares] = 'hash', [KEYS[3] or limits] = 'hash' })

local changed = KEYS[3] and redis.call('hget', KEYS[3], 'limits')
if changed then
  local changes = limit_changes(changed)
  rate, width = limit_now(changes, 'rate', rate, width)
  most = limit_now(changes, 'concurrency', most)
end

local now = now_us()
local ms = math.floor(now / 1000)
-- A full Redis allows this, and then the writes after it: deliveries that have ended make room for others.
redis.call('hdel', limits, '')

local others, mine = 0, 0
local all = redis.call('hgetall', shares)
for at = 1, #all, 2 do
  local count, ends = string.match(all[at + 1], '^(%d+):(%d+)$')
  if not count or number_of(ends) <= ms then
    redis.call('hdel', shares, all[at])
  elseif all[at] == consumer then
    mine = number_of(count)
  else
    others = others + number_of(count)
  end
end

local given, wait = wanted, 0
if most > 0 and given > most - others - held then
  given = math.max(0, most - others - held)
  if given == 0 and wanted > 0 then
    wait = -1
    redis.call('hset', limits, 'w', string.format('%.0f', ms + WAIT_MS))
  end
end
if rate > 0 then
  local free, words, first = window(redis.call('hget', limits, 'r'), rate, width, now)
  -- Of the latest grants: younger grants of others are given back in their place.
  local returned, at = unused, #words
  while returned > 0 and at > 0 do
    local back = math.min(returned, words[at][2])
    words[at][2], returned, free = words[at][2] - back, returned - back, free + back
    at = at - 1
  end
  if given > free then
    given = math.max(0, free)
    if given == 0 then
      if turn <= now then
        turn = next_turn(number_of(redis.call('hget', limits, 't')), words, first or now, rate, width, now)
        redis.call('hset', limits, 't', string.format('%.0f', turn))
      end
      wait = math.max(1, turn - now)
    end
  end
  if given > 0 or unused > 0 then
    redis.call('hset', limits, 'r', granted(words, given, rate, width, now))
  end
end

if held + given > 0 then
  redis.call('hset', shares, consumer, string.format('%.0f:%.0f', held + given, ms + ttl))
else
  redis.call('hdel', shares, consumer)
end
if held + given < mine and number_of(redis.call('hget', limits, 'w')) > ms then
  redis.call('hdel', limits, 'w')
  redis.call('publish', ARGV[10], 'ready')
end
return { given, wait, string.format('%.0f', turn) }
