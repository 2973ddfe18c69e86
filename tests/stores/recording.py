"""The calls of scripts, recorded with what was in Redis before each, so that they can be run again."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Session

Dump = Mapping[bytes, bytes]

#: Deletes the keys that match a pattern, and restores others.
RESTORE = """
local cursor = '0'
repeat
  local found = redis.call('scan', cursor, 'match', ARGV[1], 'count', 1000)
  cursor = found[1]
  if #found[2] > 0 then redis.call('del', unpack(found[2])) end
until cursor == '0'
for at, key in ipairs(KEYS) do
  redis.call('restore', key, 0, ARGV[at + 1])
end
"""


@dataclass(frozen=True)
class Call:
    """One call of a script."""

    name: str
    command: Command
    #: What was in Redis before it, by key.
    before: Dump

    @property
    def keys(self) -> Sequence[str]:
        """Its KEYS."""
        return [str(key) for key in self.command[3 : 3 + int(self.command[2])]]


class Recorder(ABC):
    """Runs commands one by one, and offers the calls of scripts to `keep`."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    @abstractmethod
    def keep(self, call: Call, reply: Any) -> None:
        """Keep a call that has just been made, or drop it."""

    def install(self, monkeypatch: Any) -> None:
        """Let every session run through it."""
        pipeline = Session.pipeline

        def one_by_one(session: Session, commands: Sequence[Command]) -> list[Any]:
            return [self._run(lambda one=one: pipeline(session, [one])[0], one) for one in commands]

        monkeypatch.setattr(Session, "pipeline", one_by_one)

    def _run(self, run: Any, command: Command) -> Any:
        if command[0] != "EVALSHA":
            return run()
        name = scripts._by_sha[str(command[1])].name
        before = self.dump()
        reply = run()
        self.keep(Call(name, command, before), reply)
        return reply

    def keys(self) -> list[bytes]:
        """Return the keys of the namespace."""
        return sorted(self.client.scan_iter(match=f"*{self.namespace}*", count=1000))

    def dump(self) -> Dump:
        """Return what is in Redis."""
        keys = self.keys()
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.dump(key)
        return {key: dump for key, dump in zip(keys, pipeline.execute(), strict=True) if dump is not None}

    def restore(self, dump: Dump) -> None:
        """Put back what was in Redis."""
        self.client.eval(RESTORE, len(dump), *dump, f"*{self.namespace}*", *dump.values())

    def run(self, call: Call) -> Any:
        """Run a call, and return its reply or its error."""
        try:
            return self.client.execute_command(*scripts.in_full(call.command))
        except redis.RedisError as error:
            return error
