"""The boxes of the pages of docs/, and what executes those with code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.coming_from import boxes as coming_from
from tests.shell import ROOT
from tests.walkthrough.steps import steps

DOCS = ROOT / "docs"
#: Whose boxes are executed on every page. `sh` is for what no test can do: installing, the system's own commands.
CODE = ("python", "console")
BOX = re.compile(r"^```(?P<language>[^\s`]*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Elsewhere:
    """What executes a page that needs more than the shared project of tests/pages."""

    #: A path in this repository.
    by: str
    reason: str
    #: A pattern whose first group is the text of a box that is executed; None if `by` has its own reader.
    marked: str | None = None


WALKTHROUGH = "it starts processes, in an environment that has only what the page installs"
#: By page, without `.md`; a name that ends in `/` is of all pages in a folder.
ELSEWHERE = {
    "tour": Elsewhere("tests/test_readme.py", WALKTHROUGH),
    "tutorial": Elsewhere("tests/test_tutorial.py", WALKTHROUGH),
    "testing": Elsewhere(
        "tests/testing/test_kit.py",
        "its examples are the tests of a project, which pytest and Django's runner collect",
        r"<!-- test: \w+\.py -->\n```python\n(.*?)```",
    ),
    "opentelemetry": Elsewhere(
        "tests/observability/test_opentelemetry_docs.py",
        "its examples are the files of a project: a trace goes from the web process to a consumer",
        r"<!-- file: [\w/.]+ -->\n```python\n(.*?)```",
    ),
    "coming-from/": Elsewhere(
        "tests/coming_from", "each page has a project of its own, with the workers of the other queue"
    ),
}


def pages() -> list[str]:
    """Return the pages of docs/, by path without `.md`."""
    return [path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))]


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def boxes(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each box."""
    return [(box["language"], box["text"]) for box in BOX.finditer(text_of(page))]


def code(page: str) -> list[str]:
    """Return the boxes that are to be executed."""
    return [text for language, text in boxes(page) if language in CODE]


def elsewhere(page: str) -> Elsewhere | None:
    return ELSEWHERE.get(page) or ELSEWHERE.get(f"{Path(page).parent.as_posix()}/")


def run_here() -> list[str]:
    """Return the pages whose boxes run in the shared project."""
    return [page for page in pages() if code(page) and not elsewhere(page)]


def executed(page: str) -> Iterator[str]:
    """Yield the texts of the boxes that are executed."""
    other = elsewhere(page)
    if other is None:
        yield from code(page)
    elif other.marked:
        yield from re.findall(other.marked, text_of(page), re.DOTALL)
    elif page.startswith("coming-from/"):
        name = page.removeprefix("coming-from/")
        yield from (box.text for side in ("right", "both") for box in coming_from.boxes(name, side))
    else:
        yield from (text for kind, _, text in steps(DOCS / f"{page}.md") if kind != "skip")
