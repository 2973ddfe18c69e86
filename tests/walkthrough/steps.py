"""What a page asks a reader to do."""

import re
from collections.abc import Iterator
from pathlib import Path

MARK = re.compile(r"<!-- (?P<kind>[a-z-]+)(?:: (?P<argument>.+?))? -->")
BOX = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ALONE = {"open", "press", "redrive", "stop", "wait"}
KINDS = {"run", "start", "redis-server", "export", "file", "replace", "shell", "redis-cli", "skip", *ALONE}
#: What comments of other tools begin with.
FOREIGN = {"measured"}


def steps(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yield kind, argument and code of everything to do, in order. Each box has a mark, and each mark its box."""
    text = page.read_text(encoding="utf-8")
    boxes = {box.start(): box for box in BOX.finditer(text)}
    for mark in MARK.finditer(text):
        kind, argument = mark["kind"], mark["argument"] or ""
        box = boxes.pop(mark.end() + 1, None)
        if kind not in FOREIGN:
            assert kind in KINDS, mark[0]
            assert (box is None) == (kind in ALONE), mark[0]
            yield kind, argument, box["code"] if box else ""
    assert not boxes, [box["code"] for box in boxes.values()]
