"""The pages of the documentation, and what package indexes show of the README."""

import re
import zipfile
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path

import pytest

from tests.install.wheels import ROOT, build, copy_source

PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "example_project" / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_a_package_index_gets_a_description_without_dead_links(tmp_path: Path):
    """It has none of the files beside the README."""
    with zipfile.ZipFile(build(copy_source(tmp_path), "wheel")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser(policy=compat32).parsebytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert text.count("\n## ") == (ROOT / "README.md").read_text(encoding="utf-8").count("\n## ")
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    assert "<!--" not in text
    assert "docs/settings.md | every setting" in text
