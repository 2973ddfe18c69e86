"""The examples of docs/tasks.md, run."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.task_backend.compat import TaskResultStatus
from mq_django.transport.connections import get_client
from tests.working import work

PAGE = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    return re.search(rf"<!-- try: {name} -->\n```python\n(.*?)```", PAGE, re.S)[1]


@pytest.fixture
def documented(mq_settings, monkeypatch):
    module = ModuleType("documented_tasks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(example("outcomes"), vars(module))
    return module


@pytest.mark.parametrize(
    ("order_id", "status", "value"),
    [
        (1, TaskResultStatus.SUCCESSFUL, {"receipt": "R-1"}),
        (2, TaskResultStatus.READY, None),
        (3, TaskResultStatus.SUCCESSFUL, None),
        (4, TaskResultStatus.FAILED, None),
    ],
)
def test_each_outcome_has_the_status_of_the_table(documented, order_id, status, value):
    result = documented.send_receipt.enqueue(order_id)
    work("default")
    result.refresh()
    assert result.status == status
    if status == TaskResultStatus.SUCCESSFUL:
        assert result.return_value == value


def test_a_retry_waits_as_long_as_it_says(documented):
    result = documented.send_receipt.enqueue(2)
    work("default")
    client, keys = get_client("inspect"), get_config().queue("default").keys
    seconds, _ = client.time()
    assert seconds * 1000 + 25_000 < client.zscore(keys.due, result.id) < seconds * 1000 + 35_000


def test_a_burial_is_a_dead_letter_with_the_reason(documented):
    documented.send_receipt.enqueue(4)
    work("default")
    ((_, letter),) = get_client("inspect").xrange(get_config().queue("default").keys.dead)
    assert letter[b"deaderror"] == b"there is no order 4"


def test_many_are_enqueued(documented):
    exec(example("many"), vars(documented))
    assert [message.data for message in work("default")] == [
        {"args": [1], "kwargs": {}},
        {"args": [2], "kwargs": {}},
        {"args": [], "kwargs": {"order_id": 1}},
        {"args": [], "kwargs": {"order_id": 2}},
    ]


def test_of_unique_tasks_one_waits_and_one_is_ready(documented):
    for _ in range(2):
        exec(example("unique"), vars(documented))
    assert [message.unique for message in work("default")] == ["send:1"]
    assert queues["default"].find(unique="remind:1").message.data == {"args": [1], "kwargs": {}}
    exec(example("unique"), vars(documented))
    assert len(work("default")) == 1
