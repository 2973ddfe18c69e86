-- Look at results, and register a process for those that have not ended, in one step: an ending before it is seen, and one
-- after it is told.
--
-- KEYS     results   {queue}:result:<id>   STRING   a line for the task, and one for each attempt
-- KEYS     waiters   {queue}:waiters       HASH     last; key of a result -> "<end of the registration, ms> <process>\n" ...
-- ARGV[1]  process
-- ARGV[2]  how long the registration is valid, ms
-- ARGV     for each result: its length when the process saw last that it has not ended; 0: unknown
--
-- Returns for each result, but not for all if they are large: nil if it does not exist; its length if it has not ended;
-- its value if it seems to have ended; "" if that is longer than what is sent.

-- with types
-- with clock
-- with numbers
-- with waiters
-- The most bytes of results that are read.
local MOST_READ = 4194304
-- The most processes that wait for one result.
local MOST_PROCESSES = 100
-- Registrations of others that are checked at each call, so that registrations of dead processes are removed.
local CHECKED = 3

local process, count, waiters = ARGV[1], #KEYS - 1, KEYS[#KEYS]
check_types({ [waiters] = 'hash' })
local lengths = {}
for i = 1, count do
  lengths[i] = redis.pcall('strlen', KEYS[i])
  if type(lengths[i]) == 'table' then
    return lengths[i]
  end
end

local now = now_ms()

-- Return the valid registrations of a result, without this process's.
local function valid(registered)
  local kept, number = '', 0
  for expires, other in string.gmatch(short(registered), '(%d+) (%w+)') do
    if other ~= process and number_of(expires) > now and number < MOST_PROCESSES then
      kept, number = kept .. expires .. ' ' .. other .. '\n', number + 1
    end
  end
  return kept
end

local function register(key)
  local others = valid(redis.call('hget', waiters, key) or '')
  redis.call('hset', waiters, key, others .. string.format('%.0f %s\n', now + ARGV[2], process))
end

local function has_ending(value)
  return string.find(value, '\n{"status":"SUCCESSFUL"', 1, true) or string.find(value, '\n{"status":"FAILED"', 1, true)
end

local reply, read, registered = {}, 0, false
for i = 1, count do
  local key, length = KEYS[i], lengths[i]
  local answer = length > 0 and length
  if answer and length ~= tonumber(ARGV[2 + i]) then
    if read > 0 and read + length > MOST_READ then
      break
    end
    read = read + length
    local value = redis.call('getrange', key, 0, -1)
    if has_ending(value) then
      answer = length <= LARGEST_SENT and value or ''
    end
  end
  if answer == length then
    register(key)
    registered = true
  end
  reply[i] = answer
end
if registered then
  local some = redis.call('hrandfield', waiters, CHECKED, 'withvalues')
  for i = 1, #some, 2 do
    if not string.find(some[i + 1], process, 1, true) and valid(some[i + 1]) == '' then
      redis.call('hdel', waiters, some[i])
    end
  end
  redis.call('pexpire', waiters, ARGV[2])
end
return reply
