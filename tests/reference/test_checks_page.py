"""docs/reference/checks.md has a section for each check."""

import re
from pathlib import Path

from tests.golden.public import every_check

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")


def test_each_check_has_its_section():
    assert re.findall(r"^### (.+)$", PAGE, re.MULTILINE) == list(every_check())


def test_each_section_says_what_it_means_and_what_to_do():
    sections = re.split(r"^##+ .+$", PAGE, flags=re.MULTILINE)[2:]
    assert [section for section in sections if 0 < len(section.split()) < 15] == []
