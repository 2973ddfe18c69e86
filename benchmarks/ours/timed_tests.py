"""Tests of a project, and how long each of them took, as a plugin of pytest: `benchmarks.testing` runs it."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import messages
from mq_django import queues

#: The plugin that is measured, and its hook.
PLUGIN = "mq_django.testing.plugin"
#: Empty tests for each of the others.
EMPTY = 5
ROUNDS, BATCHES, BATCH = 200, 10, 1000

each_round = pytest.mark.parametrize("number", range(ROUNDS))

#: Seconds by what was measured.
found: dict[str, list[float]] = defaultdict(list)


@each_round
@pytest.mark.parametrize("copy", range(EMPTY))
def test_empty(number: int, copy: int) -> None:
    pass


@each_round
def test_fixture(mq: Any, number: int) -> None:
    pass


@each_round
def test_message(mq: Any, number: int) -> None:
    queues[messages.queue_name(0)].publish("noop", messages.make(number))
    assert len(mq.run()) == 1


@pytest.mark.parametrize("number", range(BATCHES))
def test_batch(mq: Any, number: int) -> None:
    batch = range(number * BATCH, (number + 1) * BATCH)
    queues[messages.queue_name(0)].publish_many([("noop", messages.make(at)) for at in batch])
    began = time.perf_counter()
    handled = mq.run()
    found["run"].append((time.perf_counter() - began) / BATCH)
    assert len(handled) == BATCH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the kinds of tests take turns, so that a noisy machine is fair to all."""
    items.sort(key=lambda item: item.callspec.params["number"])  # type: ignore[attr-defined]  # all have parameters


def pytest_configure(config: pytest.Config) -> None:
    """Measure the hook of the plugin alone."""
    for hook in config.hook.pytest_runtest_teardown.get_hookimpls():
        if hook.plugin_name == PLUGIN:
            hook.function = timed(hook.function)


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that notes how long its calls take."""

    def call() -> None:
        began = time.perf_counter()
        function()
        took.append(time.perf_counter() - began)

    took = found["hook"]
    return call


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with all its fixtures, and the hook after a test that has sent nothing."""
    began, hooks = time.perf_counter(), len(found["hook"])
    result = yield
    kind = item.originalname  # type: ignore[attr-defined]  # all are functions
    found[kind].append(time.perf_counter() - began)
    if kind == "test_empty":
        found["hook of an empty test"] += found["hook"][hooks:]
    return result


def pytest_sessionfinish() -> None:
    """Write what was found."""
    Path(os.environ["BENCH_REPORT"]).write_text(json.dumps(found), encoding="utf-8")
