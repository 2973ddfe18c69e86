"""The boxes of the pages in docs/coming-from/, with what the comment above each says of it.

A comment names the side, what to do with the box, and after a colon the file, or the texts that must be printed:

<!-- right file: shop/tasks.py -->    add the box to the end of this file; `write` replaces the file
<!-- right start: ready / A -->       start the command of each line, and wait for the texts
<!-- right shell: A / B -->           run the code in `manage.py shell`, or in node; A and B are printed somewhere
<!-- both run: A -->                  run the command, again and again until it prints A
<!-- both run: A after B -->          the same; before the first `start` it has printed B
<!-- right wait: A -->                A is printed; there is no box

The sides are mq_django alone (`right`, on the index), and a project that also has the old queue (`both`, elsewhere).
"""

import re
from dataclasses import dataclass

from tests.shell import ROOT

FOLDER = ROOT / "docs" / "coming-from"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
MARK = re.compile(
    r"^<!-- (right|both) (file|write|start|shell|run): ?(.*?) ?-->\n```(\w+)\n(.*?)^```$"
    r"|^<!-- (right|both) wait: (.*?) -->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Box:
    side: str
    kind: str
    #: The path of a file, or the texts that are expected, with ` / ` between them.
    argument: str
    language: str
    text: str

    @property
    def expected(self) -> list[str]:
        return [text for text in self.argument.partition(" after ")[0].split(" / ") if text]

    @property
    def earlier(self) -> str:
        """What the command prints before any worker runs."""
        return self.argument.partition(" after ")[2]


def page(name: str) -> str:
    """Return the text of a page."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def boxes(name: str, side: str) -> list[Box]:
    """Return the boxes of a side of a page."""
    found = []
    for mark in MARK.finditer(page(name)):
        of, kind, argument, language, text, waits, awaited = mark.groups()
        if waits:
            box = Box(side=waits, kind="wait", argument=awaited, language="", text="")
        else:
            box = Box(side=of, kind=kind, argument=argument, language=language, text=text)
        if box.side == side:
            found.append(box)
    return found
