"""The app of docs/coming-from/index.md, run by the test kit in a project of its own, and the parts of each page."""

import json
import sys
from pathlib import Path

from tests.coming_from.boxes import PAGES, boxes, page
from tests.coming_from.stage import Stage
from tests.optional import needs_croniter

PARTS = ["## Words", "## What has no translation", "## Moving"]


@needs_croniter
def test_the_app_runs_on_the_kit(tmp_path):
    right = boxes("index", "right")
    code = [(box.text, box.expected) for box in right if box.kind in ("shell", "wait")]
    assert len(code) == 3
    with Stage(
        tmp_path / "app", url="redis://127.0.0.1:1", programs=Path(sys.executable).parent, BOXES=json.dumps(code)
    ) as project:
        project.play([box for box in right if box.kind == "file"])
        project.check(
            ["python", "-m", "pytest", "on_the_kit.py", "shop/tests.py", "-W", "error", "-p", "no:cacheprovider"]
        )


def test_each_page_has_the_same_parts(subtests):
    for name in PAGES:
        with subtests.test(name=name):
            parts = [line for line in page(name).splitlines() if line.startswith("## ")]
            assert parts == PARTS


def test_each_box_of_code_is_run(subtests):
    """A box without a comment above it would not be."""
    for name in ("index", *PAGES):
        with subtests.test(name=name):
            run = [box for side in ("right", "both") for box in boxes(name, side) if box.kind != "wait"]
            assert page(name).count("\n```\n") == len(run)
