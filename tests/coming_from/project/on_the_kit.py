"""The right side of a page, run by the test kit. The variable BOXES has its boxes with Python code."""

import json
import os
import sys
import time

import pytest

BOXES = json.loads(os.environ["BOXES"])


@pytest.mark.django_db(transaction=True)
def test_the_right_side(mq, monkeypatch, capfd):
    sleep = time.sleep

    def work_or_sleep(seconds):
        """Let the consumers work while a box waits for a result."""
        if sys._getframe(1).f_globals["__name__"] == "box":
            mq.run(raise_errors=False)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", work_or_sleep)
    shown = ""
    for code, expected in BOXES:
        exec(compile(code, "<box>", "exec"), {"__name__": "box"})
        mq.run_until_idle(schedules=True, raise_errors=False)
        if not code:
            mq.advance(minutes=1, seconds=1)
            mq.run(raise_errors=False)
        shown += "".join(capfd.readouterr())
        assert [text for text in expected if text not in shown] == [], f"{code}\n{shown}"
    assert [f"{letter.message.name}: {letter.error}" for letter in mq.dead] == []
