"""The README and the tour of the features, to the letter: see tests/walkthrough."""

from pathlib import Path

import pytest

from tests.install.wheels import ROOT
from tests.walkthrough.newcomer import newcomer
from tests.walkthrough.steps import steps

README, TOUR = ROOT / "README.md", ROOT / "docs" / "tour.md"


@pytest.mark.parametrize(("page", "at_least"), [(README, 6), (TOUR, 30)], ids=["README", "tour"])
def test_every_box_says_what_becomes_of_it(page: Path, at_least: int):
    kinds = [kind for kind, _, _ in steps(page)]
    assert "skip" not in kinds
    assert len(kinds) >= at_least


def test_the_readme_fits_on_two_screens():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 110


@pytest.mark.slow
def test_the_readme_works_from_top_to_bottom(tmp_path: Path):
    with newcomer(tmp_path) as reader:
        for step in steps(README):
            reader.do(*step)
        assert {(row["dead"], row["unhandled"], row["delayed"]) for row in reader.status().values()} == {(0, 0, 0)}
        assert reader.stop("runconsumer") == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tour_works_from_top_to_bottom(tmp_path: Path):
    with newcomer(tmp_path) as reader:
        for step in steps(TOUR):
            reader.do(*step)
        said = reader.output("runconsumer")
        once = ["Cart 1 is still waiting", "Billed order 7.", "Packed order 7.", "Welcome, user 12!", "Sent: cups"]
        assert [said.count(text) for text in once] == [1] * len(once)
        assert {(row["dead"], row["unhandled"], row["delayed"]) for row in reader.status().values()} == {(0, 0, 0)}
        assert (reader.folder / ".gitignore").read_text().split() == [
            folder.name + "/" for folder in reader.folder.glob(".mq*")
        ]
        assert reader.stop("runconsumer") == 0
