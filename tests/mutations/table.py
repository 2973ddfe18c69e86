"""Read the mutations of table.txt.

Each is a block of lines: its name; its file, and the modules of tests; a text that the file has once, after `- `; and
what replaces it, after `+ `, or nothing.
"""

from collections.abc import Iterator
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
    text: str
    replacement: str

    def applied(self, source: str) -> str:
        """Return the source of the file without the promise.

        Raises:
            ValueError: the file does not have the text once, so that the mutation proves nothing.
        """
        if source.count(self.text) != 1:
            raise ValueError(f"{self.file} has {source.count(self.text)} times {self.text!r}")
        return source.replace(self.text, self.replacement)


def mutations() -> Iterator[Mutation]:
    """Yield the mutations of the table, in its order."""
    topic = ""
    for block in TABLE.read_text(encoding="utf-8").strip().split("\n\n"):
        name, *lines = block.splitlines()
        if name.startswith("#"):
            topic = name.removeprefix("# ")
            continue
        file, tests = lines[0].split(" ", 1)
        text, replacement = ("\n".join(line[2:] for line in lines[1:] if line[0] == sign) for sign in "-+")
        yield Mutation(topic, name, file, tests, text, replacement)
