"""What applications import, call and configure: `public/*.txt`."""

import re
from functools import cache
from pathlib import Path

from tests.compat.versions import ROOT
from tests.golden import files
from tests.golden.public import PARTS

PUBLIC = Path(__file__).parent / "public"


@cache
def text_of(part):
    return "\n".join(PARTS[part]()).strip() + "\n"


def test_what_is_public():
    files.check(PUBLIC, {part: text_of(part) for part in PARTS})


def test_each_file_has_its_part():
    assert {path.stem for path in PUBLIC.iterdir()} <= set(PARTS)


def test_what_the_documentation_imports_is_public():
    described = "\n".join(text_of(part) for part in ("names", "errors", "signals"))
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    imports = [found for page in pages for found in re.findall(r"from (mq_django[\w.]*) import (.+)", page.read_text())]
    assert len(imports) > 5
    # Integrations need optional packages: see tests/reference/test_names.py.
    ours = [found for module, found in imports if ".observability." not in module]
    missing = [name for found in ours for name in re.findall(r"\w+", found) if not _describes(described, name)]
    assert missing == []


def _describes(described: str, name: str) -> bool:
    return bool(re.search(rf"^(mq_django\.(\w+\.)?)?{name}\b", described, re.MULTILINE))
