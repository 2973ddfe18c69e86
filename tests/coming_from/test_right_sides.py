"""The right side of each page in docs/coming-from/, run by the test kit in a project of its own."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.coming_from.boxes import PAGES, boxes, page
from tests.coming_from.stage import Stage
from tests.optional import needs_croniter

FIRST_PARTS = ["## The same app", "## Words", "## What has no translation", "## Moving"]


def play(name, folder):
    """Run the right side of a page, as tests of a project."""
    right = boxes(name, "right")
    code = [(box.text, box.expected) for box in right if box.kind in ("shell", "wait")]
    assert len(code) > 3
    project = Stage(folder, url="redis://127.0.0.1:1", programs=Path(sys.executable).parent, BOXES=json.dumps(code))
    with project:
        project.play([box for box in right if box.kind in ("file", "write")])
        options = ["-W", "error", "-p", "no:cacheprovider"]
        project.check(["python", "-m", "pytest", "on_the_kit.py", "shop/tests.py", *options])


@needs_croniter
def test_the_right_sides_run_on_the_kit(tmp_path, subtests):
    # A page is a process of its own.
    with ThreadPoolExecutor(2) as threads:
        pages = {name: threads.submit(play, name, tmp_path / name) for name in PAGES}
    for name, played in pages.items():
        with subtests.test(name):
            played.result()


def test_each_page_has_the_same_parts(subtests):
    for name in PAGES:
        with subtests.test(name=name):
            parts = [line for line in page(name).splitlines() if line.startswith("## ")]
            assert parts == FIRST_PARTS


def test_each_box_of_code_is_run(subtests):
    """A box without a comment above it would not be."""
    for name in PAGES:
        with subtests.test(name=name):
            text = page(name)
            assert text.count("\n```\n") == sum(
                len([box for box in boxes(name, side) if box.kind != "wait"]) for side in ("left", "right", "both")
            )
