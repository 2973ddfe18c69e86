"""The pages in an admin of another look."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.admin.test_pages import addresses
from tests.seeding import bury, dead_entry, publish

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("unfold") is None, reason="django-unfold is not installed")
def test_each_page_renders_and_each_button_works_with_unfold(mq_settings, tmp_path):
    publish("emails", "welcome", 1, delay=60)
    bury("emails")
    paths = [path for path in addresses() if not path.endswith("history/")]
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.admin.unfold_settings",
        "MQ_DJANGO_TEST": json.dumps(mq_settings()),
        "MQ_DJANGO_TEST_DATABASE": str(tmp_path / "db.sqlite3"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.admin.visit"],
        input=json.dumps([paths, dead_entry("emails")]),
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = json.loads(done.stdout)

    for path in paths:
        assert pages[path].startswith("200 "), path
        assert "unfold/css" in pages[path], path
        assert 'id="content-main"' in pages[path], path
    assert "1 dead letter was redriven." in pages["emails/dead/chosen/"]
    assert "The queue is paused." in pages["emails/pause/"]
