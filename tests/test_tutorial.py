"""The tutorial, to the letter: see tests/walkthrough."""

from pathlib import Path

import pytest

from tests.install.wheels import ROOT
from tests.walkthrough.newcomer import newcomer
from tests.walkthrough.steps import steps

TUTORIAL = ROOT / "docs" / "tutorial.md"


def test_every_box_says_what_becomes_of_it():
    kinds = [kind for kind, _, _ in steps(TUTORIAL)]
    assert kinds.count("skip") == 2
    assert len(kinds) > 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tutorial_works_from_top_to_bottom(tmp_path: Path):
    with newcomer(tmp_path) as reader:
        for step in steps(TUTORIAL):
            reader.do(*step)
        said = reader.output("runconsumer-before")
        once = ["To bob@example.org: we", "To cleo@example.org: we", "Reminder: order", "To dora@example.org: receipt"]
        assert [said.count(text) for text in once] == [1] * len(once)
        assert "nobody@example.org" not in said
        assert {row["dead"] for row in reader.status().values()} == {0}
