"""A fixed clock and fixed ids, so that the same calls always have the same effects."""

import itertools
import secrets
import time
from collections.abc import Callable
from typing import Any

from mq_django.core import ids, rsmq_format
from mq_django.transport import scripts
from mq_django.transport.scripts import Script

#: Seconds since 1970. A multiple of 16 microseconds: see lua/waiting_claim.lua.
NOW = 2_000_000_000.25
NOW_MS = 2_000_000_000_250

#: Stands before a script: what it calls `redis` from there on tells a fixed time and makes ids of entries from it. What
#: is published is kept in a list. What differs from server to server is replaced: sizes in memory, times since a
#: delivery, the order of hashes.
PRELUDE = """
local server = redis
local function next_entry(stream)
  local info, last = server.pcall('xinfo', 'stream', stream), '0-0'
  for at = 1, info.err and 0 or #info, 2 do
    last = info[at] == 'last-generated-id' and info[at + 1] or last
  end
  local ms, n = string.match(last, '^(%d+)-(%d+)$')
  if tonumber(ms) < 2000000000250 then
    return '2000000000250-0'
  end
  return ms .. '-' .. string.format('%.0f', n + 1)
end
local function backwards(flat)
  local names, values = {}, {}
  for at = 1, #flat, 2 do
    names[#names + 1], values[flat[at]] = flat[at], flat[at + 1]
  end
  table.sort(names, function(a, b) return a > b end)
  for at, name in ipairs(names) do
    flat[2 * at - 1], flat[2 * at] = name, values[name]
  end
  return flat
end
local function frozen(call, name, ...)
  local command, args = string.lower(name), { ... }
  if command == 'time' then
    return { '2000000000', '250000' }
  elseif command == 'publish' then
    server.call('rpush', args[1] .. ':published', args[2])
    return 0
  elseif command == 'memory' then
    return 100 * server.call('xlen', args[2])
  end
  for at = 2, command == 'xadd' and 5 or 0 do
    if args[at] == '*' then
      args[at] = next_entry(args[1])
      break
    end
  end
  local reply = call(name, unpack(args))
  if type(reply) == 'table' and not reply.err then
    if command == 'hgetall' then
      return backwards(reply)
    elseif command == 'xpending' and type(reply[1]) == 'table' then
      for _, pending in ipairs(reply) do
        pending[3] = 1000
      end
    end
  end
  return reply
end
local redis = setmetatable({
  call = function(...) return frozen(server.call, ...) end,
  pcall = function(...) return frozen(server.pcall, ...) end,
}, { __index = server })
"""


def freeze(monkeypatch: Any) -> None:
    """Let the clocks of Redis and Python stand, and make ids one after the other instead of at random."""
    monkeypatch.setattr(scripts, "load", _frozen(scripts.load))
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    monkeypatch.setattr(rsmq_format, "_latest", 0)
    monkeypatch.setattr(ids, "_prefix", "id")
    count_anew(monkeypatch)


def count_anew(monkeypatch: Any) -> None:
    """Begin with the first id again, so that one more call before some others changes no id of theirs."""
    numbers = itertools.count(1)
    monkeypatch.setattr(ids, "_counter", itertools.count(1))
    monkeypatch.setattr(secrets, "randbits", lambda bits: next(numbers))


def _frozen(load: Callable[[str], Script]) -> Callable[[str], Script]:
    known: dict[str, Script] = {}

    def frozen_load(name: str) -> Script:
        if name not in known:
            known[name] = scripts.script(name, PRELUDE + load(name).text)
        return known[name]

    return frozen_load
