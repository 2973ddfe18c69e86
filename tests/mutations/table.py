"""Read the mutations of table.txt.

Each is a block of lines: its name; its file, and the modules of tests or a scenario of chaos; a text that the file has
once, after `- `; and what replaces it, after `+ `, or nothing. Lines after `- ` that follow lines after `+` begin
another text of the file, and `@ ` goes on in another file.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parent / "table.txt"


class Mutation(NamedTuple):
    """A promise, and how it is broken."""

    topic: str
    name: str
    #: Arguments of pytest: modules, of which a test must fail. Or `scenario:NAME`, in which the checker must find it.
    tests: str
    #: A file, what it has once, and what replaces that.
    edits: Sequence[tuple[str, str, str]]

    @property
    def files(self) -> set[str]:
        """The files that it changes."""
        return {file for file, _, _ in self.edits}

    def apply(self, root: Path) -> None:
        """Break the promise in a copy of the tree.

        Raises:
            ValueError: a file does not have a text once, so that the mutation proves nothing.
        """
        for file, text, replacement in self.edits:
            path = root / file
            source = path.read_text(encoding="utf-8")
            if source.count(text) != 1 or text == replacement:
                raise ValueError(f"{self.name}: {file} has {source.count(text)} times {text!r}")
            path.write_text(source.replace(text, replacement), encoding="utf-8")


def mutations() -> Iterator[Mutation]:
    """Yield the mutations of the table, in its order."""
    topic = ""
    for block in TABLE.read_text(encoding="utf-8").strip().split("\n\n"):
        name, *lines = block.splitlines()
        if name.startswith("#"):
            topic = name.removeprefix("# ")
            continue
        file, tests = lines[0].split(" ", 1)
        edits = []
        for place in re.split(r"^@ ", "\n".join([file, *lines[1:]]), flags=re.MULTILINE):
            changed, _, changes = place.partition("\n")
            found = re.findall(r"((?:^- .*\n?)+)((?:^\+.*\n?)*)", changes, re.MULTILINE)
            edits += [(changed, _text(before), _text(after)) for before, after in found]
        yield Mutation(topic, name, tests, edits)


def _text(lines: str) -> str:
    return "\n".join(line[2:] for line in lines.splitlines())
