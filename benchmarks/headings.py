"""What the heading of a peer's file says of it: two contenders, one with its fastest settings, one with its safest."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from benchmarks.contenders import Contender, Remaining

FOLDER, IN_DJANGO = Path(__file__).parent / "peers", Path(__file__).parent / "in_django"
#: A heading as of PEP 723, behind the comment signs of Python or of JavaScript.
HEADING = re.compile(r"^(?:#|//) /// script\n(.*?)^(?:#|//) ///$", re.MULTILINE | re.DOTALL)
SIGNS = re.compile(r"^(?:#|//) ?", re.MULTILINE)


class WrongHeading(ValueError):
    """A peer's file does not say what it must; the message names the file."""


def evaluated(lua: str) -> Remaining:
    """Return a function that asks Redis for the value of an expression in Lua."""

    def remaining(client: redis.Redis) -> int:
        return int(client.eval(f"return {lua}", 0))

    return remaining


def read(path: Path, *, in_django: bool = False) -> list[Contender]:
    """Return the contenders of a peer's file, the fastest first.

    Raises WrongHeading.
    """
    text = HEADING.search(path.read_text(encoding="utf-8"))
    if not text:
        raise WrongHeading(f"{path.name} has no heading between '# /// script' and '# ///'")
    try:
        heading = tomllib.loads(SIGNS.sub("", text[1]))
        oldest = _oldest_python(heading.get("requires-python", ""))
        found = _contenders(path, heading["dependencies"], oldest, **heading["tool"]["bench"])
    except (KeyError, TypeError, ValueError) as error:
        raise WrongHeading(f"{path.name}: {error}") from error
    if not in_django:
        return found
    module, environment = f"benchmarks.in_django.{path.stem}", f"{path.stem}-in-django"
    return [replace(one, in_django=True, module=module, environment=environment) for one in found]


def _oldest_python(required: str) -> str:
    """Return the version in `>=3.12`, the only form that a heading may have."""
    if required and not re.fullmatch(r">=3\.\d+", required):
        raise ValueError(f"requires-python is {required!r}, and not such as '>=3.12'")
    return required.removeprefix(">=")


def _contenders(
    path: Path,
    packages: Sequence[str],
    oldest_python: str,
    *,
    name: str,
    remaining: str = "0",
    fast: str,
    safe: str = "",
    skips: Sequence[str] = (),
    **sizes: Any,
) -> list[Contender]:
    module = str(path) if path.suffix == ".js" else f"benchmarks.peers.{path.stem}"
    return [
        Contender(
            name=f"{name}, safest" if is_safest else name,
            module=module,
            remaining=evaluated(remaining),
            environment=path.stem,
            packages=tuple(packages),
            oldest_python=oldest_python,
            variables={"BENCH_MODE": "safe" if is_safest else "fast"},
            settings=safe if is_safest else fast,
            is_safest=is_safest,
            skips=frozenset(skips),
            **sizes,
        )
        for is_safest in ((False, True) if safe else (False,))
    ]


def peers(folder: Path = FOLDER) -> list[Contender]:
    """Return all peers, by file."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".js") and path.stem != "__init__")
    return [contender for path in paths for contender in read(path)]


def in_django() -> list[Contender]:
    """Return those who publish in the transactions of a Django project, by file."""
    paths = sorted(path for path in IN_DJANGO.glob("*.py") if HEADING.search(path.read_text(encoding="utf-8")))
    return [contender for path in paths for contender in read(path, in_django=True)]
