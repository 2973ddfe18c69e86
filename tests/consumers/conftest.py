"""A queue, trees of processes that handle it, and what they did."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mq_django.conf import get_config
from mq_django.producers import queues
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.consumers.trees import History, Tree, end


@pytest.fixture(autouse=True)
def _no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without the outages of other tests: a service that was not run in its thread leaves its own open."""
    monkeypatch.setattr("mq_django.consumers.outage._outages", {})


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history")


@pytest.fixture
def trees(mq_settings: Any, settings: Any, tmp_path: Path, history: History) -> Iterator[Callable[..., Tree]]:
    """Start trees with the test's settings; they all end with the test."""
    started: list[Tree] = []

    def start(*arguments: str, wrap: Sequence[str] = (), **overrides: Any) -> Tree:
        config = mq_settings(**overrides) if overrides else settings.MQ_DJANGO
        tree = Tree(config, history.path, tmp_path / f"log{len(started)}", *arguments, wrap=wrap)
        started.append(tree)
        return tree

    yield start
    end(started)


@pytest.fixture
def store(mq_settings: Any) -> Store:
    return open_store(get_config().queue("default"), Pooled(get_client("produce")))


@pytest.fixture
def publish(mq_settings: Any) -> Callable[..., str]:
    """Publish a message that does steps, each [verb, argument]."""

    def send(*steps: Any, name: str = "act", queue: str = "default", **options: Any) -> str:
        return queues[queue].publish(name, {"do": list(steps)}, **options)

    return send


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show what the trees logged when a test fails."""
    report = yield
    if report.when == "call" and report.failed and "tmp_path" in getattr(item, "funcargs", {}):
        for log in sorted(item.funcargs["tmp_path"].glob("log*")):
            report.sections.append((log.name, log.read_text(errors="replace")))
    return report
