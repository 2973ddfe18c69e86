"""Handlers that go on where they were: after a deploy without a repeated item, after a kill from the last second."""

import signal
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from mq_django import queues
from tests.consumers.trees import kill, stop
from tests.waiting import wait_until


class Rows:
    """Rows in the database of the trees: so many that no walk ends before a test cuts them short."""

    def __init__(self, path):
        self._path = path
        self._execute("CREATE TABLE project_row (id integer PRIMARY KEY)")
        self._execute(f"INSERT INTO project_row VALUES {','.join(f'({number})' for number in range(1, 1001))}")

    def end_at(self, last):
        self._execute(f"DELETE FROM project_row WHERE id > {last}")

    def _execute(self, statement):
        with closing(sqlite3.connect(self._path, timeout=60)) as connection, connection:
            connection.execute(statement)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    path = tmp_path / "rows.sqlite3"
    monkeypatch.setenv("MQ_TEST_DATABASE", str(path))
    return Rows(path)


def walked(history, message_id):
    return [line["row"] for line in history.lines("row") if line["id"] == message_id]


def test_a_deploy_in_the_middle_repeats_nothing_and_counts_no_attempt(trees, publish, history, rows):
    first = trees()
    ids = [publish(["walk", 0.02], name=name) for name in ("act", "aact")]
    wait_until(lambda: all(len(walked(history, each)) >= 20 for each in ids))
    assert first.stop() == 0
    last = max(len(walked(history, each)) for each in ids) + 10
    assert history.lines("effect") == []
    rows.end_at(last)
    trees()
    history.wait_for("effect", 2)
    assert [walked(history, each) for each in ids] == [[*range(1, last + 1)]] * 2
    assert [line["attempt"] for line in history.lines("start")] == [1] * 4
    # Another message begins at the first row.
    other = publish(["walk", 0.0])
    history.wait_for("effect", 3)
    assert walked(history, other) == [*range(1, last + 1)]


def test_a_kill_repeats_no_more_than_was_not_reported(trees, publish, history, rows):
    first = trees("--processes", "1", QUEUES={"default": {"RETRY": {"delay": 0.05}}})
    sent = publish(["walk", 0.02])
    reported = wait_until(lambda: (found := queues["default"].progress(sent)) and found.done > 5 and found.done)
    # A process that is killed alone is replaced, and its message is charged.
    (child,) = first.children()
    stop(first.pid)
    kill(child)
    last = max(walked(history, sent)) + 75
    rows.end_at(last)
    kill(first.pid, signal.SIGCONT)
    history.wait_for("effect")
    assert len(history.lines("start")) == 2
    counts = Counter(walked(history, sent))
    assert [*counts] == [*range(1, last + 1)]
    assert min([row for row, count in counts.items() if count > 1], default=last) >= reported
