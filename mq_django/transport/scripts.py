"""The Lua scripts, by name, and redis-py's errors in our own words."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from redis import exceptions

from mq_django.errors import ConnectionLost, ReadOnly, RedisOutOfMemory, StoreError, WrongKeyType

Argument = str | bytes | int
#: A command and its arguments, as they go over the wire.
Command = tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """One file of `lua/`."""

    name: str
    text: str
    sha: str


_by_sha: dict[str, Script] = {}

#: A line that stands for `lua/parts/<name>.lua`: functions that several transitions need, and Lua in Redis has no
#: modules.
_PART = re.compile(r"^-- with (\w+)$", re.MULTILINE)


def _read(path: str) -> str:
    text = files("mq_django.transport").joinpath("lua", f"{path}.lua").read_text(encoding="utf-8")
    return _PART.sub(lambda found: _read(f"parts/{found[1]}"), text)


@cache
def load(name: str) -> Script:
    """Return the script in `lua/<name>.lua`, with its parts."""
    return script(name, _read(name))


def script(name: str, text: str) -> Script:
    """Return a script of this text, which can be run by its hash from now on."""
    made = Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    _by_sha[made.sha] = made
    return made


def command(name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Command:
    """Return the command that runs a script by its hash."""
    return ("EVALSHA", load(name).sha, len(keys), *keys, *args)


def in_full(evalsha: Command) -> Command:
    """Return the command that runs the same script by its text, which also makes the server remember it."""
    return ("EVAL", _by_sha[str(evalsha[1])].text, *evalsha[2:])


def run(client: redis.Redis, name: str, *, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
    """Run a script through a client and return its reply.

    Raises:
        StoreError: Redis refused or is away.
    """
    evalsha = command(name, keys=keys, args=args)
    with translated():
        try:
            return client.execute_command(*evalsha)  # type: ignore[no-untyped-call]
        except exceptions.NoScriptError:
            return client.execute_command(*in_full(evalsha))  # type: ignore[no-untyped-call]


#: Codes of error replies. They are looked for anywhere in the text, because 6.2 wraps what a script's command said.
_CODES: tuple[tuple[str, type[StoreError]], ...] = (
    ("WRONGTYPE", WrongKeyType),
    ("OOM", RedisOutOfMemory),
    ("READONLY", ReadOnly),
    ("MISCONF", ReadOnly),
    ("NOREPLICAS", ReadOnly),
    ("LOADING", ConnectionLost),
    ("MASTERDOWN", ConnectionLost),
    ("CLUSTERDOWN", ConnectionLost),
)


def translate(error: Exception) -> StoreError:
    """Return the error of ours that says what an error of redis-py or of a socket means."""
    if isinstance(error, exceptions.ReadOnlyError):
        return ReadOnly(str(error))
    if isinstance(error, exceptions.OutOfMemoryError):
        return RedisOutOfMemory(str(error))
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError):
        return ConnectionLost(f"Redis is away or did not answer in time: {error}")
    for code, kind in _CODES:
        if code in str(error):
            return kind(str(error))
    return StoreError(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Turn redis-py's errors into ours."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise translate(error) from error
