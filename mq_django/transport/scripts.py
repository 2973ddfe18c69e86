"""The Lua scripts, by name."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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

#: Stands before the text of each script. It is empty, except in tests that move the clock.
_prelude = ""

#: The key with the milliseconds by which the clock of the scripts is moved, after `use_moved_clock()`.
MOVED_CLOCK = "mq:testing:clock"

#: A line that is replaced by `lua/parts/<name>.lua`: functions that several scripts need. Lua in Redis has no modules.
_PART = re.compile(r"^-- with (\w+)$", re.MULTILINE)


def _read(path: str, known: set[str] | None = None) -> str:
    """Return the text of a file with its parts, each once."""
    seen = set[str]() if known is None else known

    def part(found: re.Match[str]) -> str:
        if found[1] in seen:
            return ""
        seen.add(found[1])
        return _read(f"parts/{found[1]}", seen)

    text = files("mq_django.transport").joinpath("lua", f"{path}.lua").read_text(encoding="utf-8")
    return _PART.sub(part, text)


@cache
def load(name: str) -> Script:
    """Return the script in `lua/<name>.lua`, with its parts."""
    return script(name, _prelude + _read(name))


def use_moved_clock() -> None:
    """Let the scripts of this process see a clock that tests move: see `lua/testing/clock.lua`."""
    global _prelude  # noqa: PLW0603 - set once, when the tests of a project begin
    _prelude = _read("testing/clock")
    load.cache_clear()


def script(name: str, text: str) -> Script:
    """Register the text of a script and return the script."""
    made = Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    _by_sha[made.sha] = made
    return made


def command(name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Command:
    """Return the command that runs a script by its hash."""
    return ("EVALSHA", load(name).sha, len(keys), *keys, *args)


def name_of(evalsha: Command) -> str:
    """Return the name of the script that a command runs; "" if it runs none."""
    return _by_sha[str(evalsha[1])].name if evalsha[0] == "EVALSHA" else ""


def with_prelude(evalsha: Command, prelude: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Command:
    """Return the command that runs `lua/preludes/<prelude>.lua` and then the script of this command, as one script.

    Args:
        evalsha: a command of command().
        prelude: removes its keys and arguments, which come last, from KEYS and ARGV.
        keys: the keys of the prelude.
        args: its arguments.
    """
    found = _with_prelude(prelude, str(evalsha[1]))
    return with_more((evalsha[0], found, *evalsha[2:]), keys=keys, args=args)


def within(evalsha: Command, outer: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Command:
    """Return the command that runs `lua/around/<outer>.lua`, which calls the script of this command as `inner()`.

    Args:
        evalsha: a command of command() or with_prelude().
        outer: removes its keys and arguments, which come last, from KEYS and ARGV, before it calls the function.
        keys: the keys of the outer script.
        args: its arguments.
    """
    found = _within(outer, str(evalsha[1]))
    return with_more((evalsha[0], found, *evalsha[2:]), keys=keys, args=args)


def with_more(evalsha: Command, *, keys: Sequence[str], args: Sequence[Argument]) -> Command:
    """Return a command of command() with more keys and arguments, after its own."""
    _, sha, count, *rest = evalsha
    assert isinstance(count, int)
    return ("EVALSHA", sha, count + len(keys), *rest[:count], *keys, *rest[count:], *args)


@cache
def _with_prelude(prelude: str, sha: str) -> str:
    name = _by_sha[sha].name
    return script(name, f"{load(f'preludes/{prelude}').text}\n{_read(name)}").sha


@cache
def _within(outer: str, sha: str) -> str:
    return script(outer, _around(outer, sha)).sha


def several(commands: Sequence[Command]) -> Command:
    """Return the command that runs several commands of one server in one script, with their replies as its reply.

    They run the same script, or are the same command with its key as the second word. The result has their name.
    """
    keys, args = list[Argument](), list[Argument]()
    calls = [_as_script(command) for command in commands]
    for _, _, count, *rest in calls:
        assert isinstance(count, int)
        keys += rest[:count]
        args += (count, len(rest) - count, *rest[count:])
    return ("EVALSHA", _several(str(calls[0][1])), len(keys), *keys, *args)


def _as_script(command: Command) -> Command:
    if command[0] == "EVALSHA":
        return command
    word, key, *rest = command
    return ("EVALSHA", _call(str(word)), 1, key, *rest)


@cache
def _call(word: str) -> str:
    return script(word, f"return redis.call('{word}', KEYS[1], unpack(ARGV))").sha


@cache
def _several(sha: str) -> str:
    return script(_by_sha[sha].name, _around("several", sha)).sha


def _around(outer: str, sha: str) -> str:
    """Return the text of a script that calls another one."""
    return f"local function inner()\n{_by_sha[sha].text}\nend\n{load(f'around/{outer}').text}"


def in_full(evalsha: Command) -> Command:
    """Return the command that runs the same script by its text, which also loads it on the server."""
    return ("EVAL", _by_sha[str(evalsha[1])].text, *evalsha[2:])
