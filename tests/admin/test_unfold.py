"""The pages in an admin of another look."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.admin.pages import LOOKS, PLACES, POSTS, Visit, world
from tests.seeding import bury, dead_entry
from tests.shell import ran

ROOT = Path(__file__).parents[2]

REDRIVE = {"action": "redrive", "confirmed": "yes"}

#: Views with a button that is pressed.
PRESSED = ("quiet", "stop", "pause", "resume", "chosen", "dead_edit")
#: What is said when a button has done its work.
SAID = (
    "was asked to go quiet",
    "was asked to stop",
    "The queue is paused.",
    "The queue was resumed.",
    "1 message was cancelled.",
    "1 dead letter was redriven.",
    "It was resubmitted as message",
)


@pytest.mark.skipif(find_spec("unfold") is None, reason="django-unfold is not installed")
def test_each_view_renders_and_buttons_work_with_unfold(mq_settings, tmp_path):
    bury("emails")
    redrive = {**REDRIVE, "_selected_action": dead_entry("emails")}
    world()
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.admin.unfold_settings",
        "MQ_DJANGO_TEST": json.dumps(mq_settings()),
        "MQ_DJANGO_TEST_DATABASE": str(tmp_path / "db.sqlite3"),
    }
    # One of each view. Unfold shows a model's history by itself, from a table that ours does not have.
    pages = {visit.name: visit for visit in LOOKS if visit.name != "=history" and not visit.name.startswith("old_")}
    visits = [*pages.values(), *(visit for visit in POSTS if visit.name in PRESSED and "confirmed" in visit.fields)]
    visits += [Visit("dead_act", "emails/dead/chosen/", set(), "post", redrive)]
    done = ran(
        [sys.executable, "-m", "tests.admin.visit"],
        input=json.dumps([(visit.method, visit.path.format(**PLACES), visit.fields) for visit in visits]),
        env=env,
    )
    answers = json.loads(done.stdout)

    for visit, (status, content) in zip(visits, answers, strict=True):
        assert status == 200, visit
        if not visit.name.endswith("stats") and not visit.name.endswith("export"):
            assert "unfold/css" in content, visit
            # Unfold shows no heading of a page by itself.
            assert "<h1>" in content.partition('id="content-main"')[2], visit
    said = " ".join(content for _, content in answers)
    for sentence in SAID:
        assert sentence in said
