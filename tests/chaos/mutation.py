"""What a mutation is: a safeguard, and how it is taken out of a copy of the tree."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A safeguard, and how it is taken out."""

    name: str
    #: Files in which it stands, as a pattern, and what is replaced by what; each file has it so many times.
    files: Sequence[str]
    pattern: str
    replacement: str
    scenario: str
    times: int = 1
    #: Instead of the scenario: a file of tests, of which one must fail.
    test: str = ""
    #: What else belongs to it: a file, what it has once, and what that is replaced by.
    also: Sequence[tuple[str, str, str]] = ()
