"""A queue, trees of processes that handle it, and what they did."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mq_django.conf import get_config
from mq_django.producers import queues
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Pooled
from tests.consumers.trees import History, SharedTree, Tree, empty, end
from tests.waiting import wait_until


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

    def start(
        *arguments: str,
        wrap: Sequence[str] = (),
        interpreter: bool = False,
        limits: Mapping[str, float] | None = None,
        **overrides: Any,
    ) -> Tree:
        config = mq_settings(**overrides) if overrides else settings.MQ_DJANGO
        log = tmp_path / f"log{len(started)}"
        tree = Tree(config, history.path, log, *arguments, wrap=wrap, interpreter=interpreter, limits=limits)
        started.append(tree)
        return tree

    yield start
    end(started)


@pytest.fixture(scope="session")
def _shared_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTree]:
    # A server of its own: other tests count keys, and clients that are blocked.
    with PrivateServer() as server:
        config = {"CONNECTION": server.url, "NAMESPACE": "shared", "QUEUES": {"default": {}, "emails": {}}}
        found = SharedTree(config, tmp_path_factory.mktemp("shared_tree"))
        yield found
        found.end()


@pytest.fixture
def shared_tree(_shared_tree: SharedTree, mq_settings: Any) -> Iterator[Tree]:
    """A tree that handles `default` and `emails` on a server of its own, which is that of the test.

    Tests share it: they neither end nor configure it. A test ends with its messages, or fails: what it left would be in
    the history of the next one. Name it before `publish` and `store`, and read what handlers noted from
    `shared_history`.
    """
    mq_settings(**_shared_tree.config)
    yield _shared_tree.running()
    session = Pooled(get_client("produce"))
    left = [open_store(get_config().queue(name), session) for name in ("default", "emails")]
    wait_until(lambda: all(map(empty, left)), timeout=20, message="the end of the messages of the test")


@pytest.fixture
def shared_history(_shared_tree: SharedTree) -> History:
    return _shared_tree.history()


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
