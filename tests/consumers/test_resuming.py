"""Handlers that go on where they were: after a deploy without a repeated item, after a kill from the last second."""

import sqlite3
from collections import Counter

import pytest

from mq_django import queues
from tests.consumers.trees import kill
from tests.waiting import wait_until

ROWS = 120


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Rows in the database of the trees."""
    path = tmp_path / "rows.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE project_row (id integer PRIMARY KEY)")
        connection.executemany("INSERT INTO project_row VALUES (?)", [(number,) for number in range(1, ROWS + 1)])
    connection.close()
    monkeypatch.setenv("MQ_TEST_DATABASE", str(path))
    return range(1, ROWS + 1)


def walked(history):
    return [line["row"] for line in history.lines("row")]


@pytest.mark.parametrize("name", ["act", "aact"])
def test_a_deploy_in_the_middle_repeats_nothing_and_counts_no_attempt(trees, publish, history, rows, name):
    first = trees()
    publish(["walk", 0.02], name=name)
    history.wait_for("row", 20)
    # Less than the whole walk would take.
    assert first.stop() == 0
    before = len(walked(history))
    assert 20 <= before < ROWS
    assert history.lines("effect") == []
    trees()
    history.wait_for("effect", timeout=30)
    assert walked(history) == list(rows)
    assert [line["attempt"] for line in history.lines("start")] == [1, 1]


def test_a_kill_repeats_the_items_of_about_a_second(trees, publish, history, rows):
    first = trees(QUEUES={"default": {"VISIBILITY_TIMEOUT": 10}})
    sent = publish(["walk", 0.05])
    wait_until(lambda: (found := queues["default"].progress(sent)) and found.done > 15, timeout=20)
    # A process that is killed alone is replaced, and its message is charged.
    for pid in first.children():
        kill(pid)
    history.wait_for("effect", timeout=60)
    counts = Counter(walked(history))
    assert set(counts) == set(rows)
    repeated = [row for row, count in counts.items() if count > 1]
    # 20 items a second, on a machine that may be slow.
    assert len(repeated) <= 40
    assert 1 not in repeated


def test_a_second_message_begins_at_the_first_row(trees, publish, history, rows):
    trees()
    publish(["walk", 0.0])
    history.wait_for("effect", 1, timeout=30)
    publish(["walk", 0.0])
    history.wait_for("effect", 2, timeout=30)
    assert Counter(walked(history)) == dict.fromkeys(rows, 2)
