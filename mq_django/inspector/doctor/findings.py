"""What a look at a project finds, and how a look is declared."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from mq_django.core.texts import escape

Level = Literal["error", "warning", "note"]

#: The worst first.
LEVELS: tuple[Level, ...] = ("error", "warning", "note")

#: The page with a section for each code.
PAGE = "docs/doctor.md"

#: The finding that something could not be looked at.
NOT_CHECKED = "D199"

#: Names that a finding lists.
MAX_NAMED = 8

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One finding: what was seen, and what to do about it."""

    #: It keeps its meaning in all versions.
    code: str
    level: Level
    seen: str
    advice: str
    #: Its subject: a server, or "" for the project.
    where: str = ""

    @property
    def link(self) -> str:
        """Return the section of the documentation about it."""
        return f"{PAGE}#{self.code.lower()}"


class Seen(NamedTuple):
    """What a look has seen, if something else than usual follows from it."""

    text: str
    level: Level | None = None
    advice: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class DoctorCheck(Generic[Facts]):
    """One look at the facts of an area: a function that yields what is wrong, and what follows from that."""

    code: str
    level: Level
    #: Says what is looked at, for the list of a report.
    what: str
    find: Callable[[Facts], Iterable[str | Seen]]
    advice: str = ""

    def findings(self, facts: Facts, where: str) -> Iterator[DoctorFinding]:
        """Yield the findings. `where`: what the facts are about."""
        for found in self.find(facts):
            seen = Seen(found) if isinstance(found, str) else found
            yield DoctorFinding(
                code=self.code,
                level=seen.level or self.level,
                seen=seen.text,
                advice=seen.advice or self.advice,
                where=seen.where or where,
            )


def counted(count: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun, such as "1 message" or "1,200 messages"."""
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def mib(size: float) -> str:
    """Return a number of bytes as MiB, such as "1.5 MiB"."""
    return f"{size / 2**20:,.1f} MiB"


def named(names: Iterable[str]) -> str:
    """Return names as a list of bounded length."""
    found = list(map(escape, names))
    return ", ".join(found[:MAX_NAMED]) + (f" and {len(found) - MAX_NAMED} more" if found[MAX_NAMED:] else "")
