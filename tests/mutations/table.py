"""Read the mutations of table.txt.

Each is a block of lines: its name; its file, and the modules of tests; a text that the file has once, after `- `; and
what replaces it, after `+ `, or nothing. Lines after `- ` that follow lines after `+ ` begin another text of the file.
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
    file: str
    #: Arguments of pytest: modules, of which a test must fail.
    tests: str
    #: What the file has once, and what replaces it.
    edits: Sequence[tuple[str, str]]

    def applied(self, source: str) -> str:
        """Return the source of the file without the promise.

        Raises:
            ValueError: the file does not have a text once, so that the mutation proves nothing.
        """
        for text, replacement in self.edits:
            if source.count(text) != 1 or text == replacement:
                raise ValueError(f"{self.name}: {self.file} has {source.count(text)} times {text!r}")
            source = source.replace(text, replacement)
        return source


def mutations() -> Iterator[Mutation]:
    """Yield the mutations of the table, in its order."""
    topic = ""
    for block in TABLE.read_text(encoding="utf-8").strip().split("\n\n"):
        name, *lines = block.splitlines()
        if name.startswith("#"):
            topic = name.removeprefix("# ")
            continue
        file, tests = lines[0].split(" ", 1)
        changes = re.findall(r"((?:^- .*\n?)+)((?:^\+.*\n?)*)", "\n".join(lines[1:]), re.MULTILINE)
        edits = [(_text(before), _text(after)) for before, after in changes]
        yield Mutation(topic, name, file, tests, edits)


def _text(lines: str) -> str:
    return "\n".join(line[2:] for line in lines.splitlines())
