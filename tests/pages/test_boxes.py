"""Each box with code, of every page of docs/, is executed: see boxes.py."""

import re

from tests.pages.boxes import CODE, ELSEWHERE, boxes, code, elsewhere, executed, pages, text_of
from tests.shell import ROOT

#: What a page shows of files that are executed.
SHOWN = {"testing": code("testing")[:1]}


def test_each_box_of_code_is_executed(subtests):
    for page in [page for page in pages() if code(page)]:
        with subtests.test(page=page):
            found = set(executed(page))
            assert [box for box in code(page) if box not in found and box not in SHOWN.get(page, ())] == []


def test_what_testing_shows_of_its_project_is_what_the_project_has():
    (shown,) = SHOWN["testing"]
    shop = ROOT / "tests" / "testing" / "project" / "shop"
    files = dict(re.findall(r"^# shop/(\w+\.py)\n(.*?)(?=^# shop/|\Z)", shown, re.MULTILINE | re.DOTALL))
    assert len(files) == 3
    for name, text in files.items():
        written = (shop / name).read_text(encoding="utf-8")
        assert [part for part in text.strip().split("\n\n\n") if part not in written] == [], name


def test_what_is_executed_elsewhere_is_there_and_has_a_reason():
    for page, other in ELSEWHERE.items():
        assert [name for name in pages() if elsewhere(name) is other and code(name)], page
        assert (ROOT / other.by).exists()
        assert len(other.reason.split()) > 4


def test_no_box_is_skipped_by_a_comment():
    """Sybil's own comments to skip are not read. The walkthrough's `skip` is, with its reason."""
    skipping = re.compile(r"^<!--+\s*(?:;\s*)?skip(?::? *(.*?))? *--+>$", re.MULTILINE)
    reasons = {page: skipping.findall(text_of(page)) for page in pages()}
    assert [page for page, found in reasons.items() if found and (elsewhere(page) is None or "" in found)] == []


def test_indented_or_odd_boxes_do_not_escape():
    """Each fence belongs to a box that the pattern finds."""
    for page in pages():
        assert 2 * len(boxes(page)) == len(re.findall(r"^[ >]*(?:```|~~~)", text_of(page), re.MULTILINE)), page


def test_code_is_of_the_languages_that_are_executed():
    names = {language for page in pages() for language, _ in boxes(page)}
    assert not names & {"py", "python3", "pycon", "{code-block}", "bash", "shell", "{doctest}", "{testcode}"}
    assert set(CODE) <= names
