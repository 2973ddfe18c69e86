"""The verb `help` of the command `mq`: the pages of the documentation, which the package brings."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from django.core.management.base import CommandError

from mq_django.core.texts import escape
from mq_django.management.terminal import Heading, Options, Terminal, VerbResult

_HERE = Path(__file__).parent.parent
#: In a wheel the pages are inside the package, as setup.py puts them. In the repository they are beside it.
FOLDERS = (_HERE / "pages", _HERE.parent / "docs")

_HEADING = re.compile(r"(#+) (.+)")
_FENCE = "```"


class Section(NamedTuple):
    """A heading of a page with what is below it, up to the next heading of its level."""

    page: str
    title: str
    lines: list[str]

    @property
    def anchor(self) -> str:
        """Return what a link to it ends with, as renderers of Markdown make it."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")


def show(options: Options, _: Terminal) -> VerbResult:
    """Show a page of the documentation, or the section about a code of the doctor or of `check`.

    Raises:
        CommandError: no page and no section has this name.
    """
    found = _sections()
    if options["topic"] is None:
        pages = {section.page: section.title for section in reversed(found)}
        width = max(map(len, pages), default=0)
        lines = [f"  {page:{width}}  {pages[page]}" for page in sorted(pages)]
        lines = [Heading("Pages: manage.py mq help PAGE, PAGE#SECTION, or a code such as D102"), *lines]
        return VerbResult([{"page": page, "title": title} for page, title in sorted(pages.items())], lines)
    name = str(options["topic"]).strip()
    section = _named(name.removeprefix("docs/").replace(".md", ""), found)
    if section is None:
        close = get_close_matches(name.lower(), {each.page for each in found} | {each.title.lower() for each in found})
        more = f" Did you mean {' or '.join(close)}?" if close else " Without a name, this lists the pages."
        raise CommandError(f"The documentation has nothing named {escape(name)}.{more}")
    return VerbResult({"page": section.page, "title": section.title, "text": "\n".join(section.lines)}, section.lines)


def _named(name: str, sections: list[Section]) -> Section | None:
    """Return the page, the section of a page as in a link, or the section whose title is a name or a code."""
    page, _, anchor = name.partition("#")
    names = {name.lower(), f"mq_django.{name}".lower()}
    for section in sections:
        if section.page == page and (not anchor or section.anchor == anchor.lower()):
            return section
    return next((section for section in sections if section.title.strip("`").lower() in names), None)


def _sections() -> list[Section]:
    """Return the sections of all pages, each page beginning with that of its title.

    Raises:
        CommandError: the pages are not installed.
    """
    folder = next(filter(Path.is_dir, FOLDERS), None)
    if folder is None:
        raise CommandError("The pages of the documentation are not installed.")
    files = sorted(folder.rglob("*.md"))
    return [
        section
        for file in files
        for section in _sections_of(
            file.relative_to(folder).with_suffix("").as_posix(), file.read_text(encoding="utf-8").splitlines()
        )
    ]


def _sections_of(page: str, lines: list[str]) -> Iterator[Section]:
    levels: dict[int, tuple[int, str]] = {}
    in_box = False
    for number, line in enumerate(lines):
        in_box ^= line.lstrip().startswith(_FENCE)
        if not in_box and (heading := _HEADING.fullmatch(line)):
            levels[number] = len(heading[1]), heading[2]
    for start, (level, title) in levels.items():
        end = next((at for at, (other, _) in levels.items() if at > start and other <= level), len(lines))
        yield Section(page, title, lines[start:end])
