-- How messages that nobody holds leave their place, for the scripts that delete them and that move them elsewhere.
--
-- Each function checks its keys, and returns a function that removes a message by its member, entry or id. That calls
-- `leaving(id, body)` before it removes one, and returns nil; or a word if it does not: 'MISSING' when the message was
-- delivered or is no longer there, 'ELSEWHERE' when it is in another state of a queue in RSMQ's format, or what `leaving`
-- returns. `body` is that of a message in a hash.

-- with clock
-- with named
-- with claims
-- with lists
-- with rsmq
-- with tokens
-- with undelivered
-- with waiting_members
local removals = {}

function removals.waiters(at, leaving)
  check_keys(at, { waiters = 'zset', waiting = 'hash', unique = 'hash', claims = 'hash' })
  return function(member)
    if not redis.call('zscore', at.waiters, member) then
      return 'MISSING'
    end
    local id = redis.call('hget', at.unique, member) or member
    local refusal = leaving(id, redis.call('hget', at.waiting, member) or '')
    if refusal then
      return refusal
    end
    redis.call('zrem', at.waiters, member)
    redis.call('hdel', at.waiting, member)
    forget_member(at.unique, member, id)
    drop_token(at.permits, at.checks, 'm-' .. member)
    release_claim(at.claims, id)
  end
end

function removals.stream(at, leaving, group)
  check_keys(at, { stream = 'stream', claims = 'hash' })
  local first = undelivered(at.stream, group, 1)[1]
  return function(entry)
    local found = redis.call('xrange', at.stream, entry, entry)[1]
    -- The range is empty when the entry is before the first undelivered one.
    if not found or not first or #redis.call('xrange', at.stream, first[1], entry, 'count', 1) == 0 then
      return 'MISSING'
    end
    local id = pairs_of(found[2]).id or ''
    local refusal = leaving(id)
    if refusal then
      return refusal
    end
    redis.call('xdel', at.stream, entry)
    drop_token(at.permits, at.checks, token_of(at.stream, entry))
    release_claim(at.claims, id)
  end
end

function removals.zset(at, leaving, place)
  check_keys(at, { zset = 'zset', hash = 'hash', notes = 'hash', unhandled = 'zset', retried = 'zset' })
  return function(id)
    local score = redis.call('zscore', at.zset, id)
    if not score then
      return 'MISSING'
    end
    local is_ready = tonumber(score) <= now_ms()
    local state = is_ready and 'READY' or state_of(at.zset, at.hash, at.unhandled, at.retried, id)
    if not state or string.lower(state) ~= place then
      return 'ELSEWHERE'
    end
    local refusal = leaving(id, redis.call('hget', at.hash, id) or '')
    if refusal then
      return refusal
    end
    remove_message(at.zset, at.hash, at.notes, id)
    redis.call('zrem', at.unhandled, id)
    redis.call('zrem', at.retried, id)
  end
end

-- Return the function for the keys that are named.
local function removal_of(at, leaving, group, place)
  if not at.zset then
    check_keys(at, { permits = 'zset', checks = 'zset' })
  end
  if at.waiters then
    return removals.waiters(at, leaving)
  end
  return at.stream and removals.stream(at, leaving, group) or removals.zset(at, leaving, place)
end
