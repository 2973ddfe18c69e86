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


def _read(path: str) -> str:
    text = files("mq_django.transport").joinpath("lua", f"{path}.lua").read_text(encoding="utf-8")
    return _PART.sub(lambda found: _read(f"parts/{found[1]}"), text)


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


def in_full(evalsha: Command) -> Command:
    """Return the command that runs the same script by its text, which also loads it on the server."""
    return ("EVAL", _by_sha[str(evalsha[1])].text, *evalsha[2:])
