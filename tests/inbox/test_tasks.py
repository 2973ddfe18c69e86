"""Tasks with `@exactly_once`: a repeat has the result of the first run."""

import pytest
from asgiref.sync import sync_to_async

from mq_django import Retry, exactly_once, get_result, task
from mq_django.conf import get_config
from mq_django.consumers.worker.databases import databases_within
from mq_django.task_backend import backend
from mq_django.testing.faults import SingleRun
from tests.inbox.conftest import ALIAS
from tests.working import run

runs = []


@exactly_once(using=ALIAS)
def number(word):
    runs.append(word)
    return {"run": len(runs), "word": word}


@exactly_once(using=ALIAS)
async def anumber(word):
    await sync_to_async(runs.append)(word)
    return {"run": len(runs), "word": word}


@exactly_once(using=ALIAS)
def refuse_once(word):
    runs.append(word)
    return Retry(delay=0, error="not yet") if len(runs) == 1 else len(runs)


@pytest.fixture(autouse=True)
def _no_runs(handlers, using, monkeypatch):
    """Begin without runs. Tasks of one test are those of no other, because a task is in all queues."""
    monkeypatch.setattr(backend, "_tasks", dict(backend._tasks))
    runs.clear()


def lose_outcome():
    """Run the next message, and lose its outcome: a killed process has not settled it."""
    with databases_within() as databases:
        SingleRun(get_config().queue("default"), databases).lose_outcome()


@pytest.mark.versions
def test_a_repeat_has_the_result_of_the_first_run():
    for count, function in enumerate((number, anumber), 1):
        result = task(function).enqueue("é")
        lose_outcome()
        assert len(runs) == count
        (handled,) = run("default")
        assert handled.exception is None
        assert get_result(result.id).return_value == {"run": count, "word": "é"}
        assert len(runs) == count


def test_a_retry_runs_again():
    result = task(refuse_once).enqueue("w")
    run("default")
    run("default")
    assert get_result(result.id).return_value == 2
    assert runs == ["w", "w"]
