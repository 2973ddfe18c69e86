"""Scripts that notice when they touch a key that is not in KEYS: on a Redis Cluster, that ends them."""

from collections.abc import Callable, Sequence
from functools import cache

from redis.crc import key_slot

from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command, Script

#: Stands before a script: what it calls `redis` from there on looks at the keys of each command first.
GUARD = """
local real, declared = redis, {}
for _, key in ipairs(KEYS) do
  declared[key] = true
end
local function touched(name, ...)
  local args = { ... }
  name = string.lower(name)
  if name == 'time' or name == 'publish' or name == 'info' then
    return {}
  elseif name == 'xgroup' or name == 'xinfo' or name == 'memory' or name == 'object' then
    return { args[2] }
  elseif name == 'del' or name == 'unlink' or name == 'exists' then
    return args
  elseif name == 'xreadgroup' then
    local found, at = {}, 1
    while string.lower(args[at]) ~= 'streams' do
      at = at + 1
    end
    for i = at + 1, at + (#args - at) / 2 do
      found[#found + 1] = args[i]
    end
    return found
  end
  return { args[1] }
end
local function look(...)
  for _, key in ipairs(touched(...)) do
    if not declared[key] then
      error('UNDECLARED ' .. tostring(key) .. ' in ' .. select(1, ...))
    end
  end
end
local redis = setmetatable({
  call = function(...) look(...) return real.call(...) end,
  pcall = function(...) look(...) return real.pcall(...) end,
}, { __index = real })
"""


def guarded(load: Callable[[str], Script]) -> Callable[[str], Script]:
    """Return a function that loads scripts with the guard before them."""
    return lambda name: _guarded(load(name))


@cache
def _guarded(script: Script) -> Script:
    return scripts.script(script.name, GUARD + script.text)


def in_one_slot(command: Callable[..., Command]) -> Callable[..., Command]:
    """Return a function that makes commands as another does, and refuses keys of several slots of a cluster."""

    def checked(name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Command:
        # An RSMQ queue whose namespace has no braces is for a single server.
        slots = {key_slot(key.encode()) for key in keys if "{" in key}
        assert len(slots) <= 1, (name, keys)
        return command(name, keys=keys, args=args)

    return checked
