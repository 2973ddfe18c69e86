"""The demo kills its own Redis once, and starts it again with its data when enough orders were placed without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from example_project.demo import outage as outages
from example_project.demo.outage import Outage
from example_project.demo.visitors import Visitors
from mq_django.transport.private_server import PrivateServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateServer]:
    with PrivateServer(directory=tmp_path, append_only=True, settings={"appendfsync": "always"}) as found:
        yield found


@pytest.fixture
def visitors() -> Visitors:
    """Visitors who have not come yet."""
    return Visitors("http://127.0.0.1:1", per_second=1)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "AFTER", 0.0)
    monkeypatch.setattr(outages, "LASTS", 0.0)


@pytest.mark.usefixtures("soon")
def test_it_lasts_until_some_orders_were_placed_and_no_data_is_lost(server: PrivateServer, visitors: Visitors) -> None:
    said: list[str] = []
    outage = Outage(server, visitors, seconds=None, say=said.append)
    with redis.Redis.from_url(server.url, protocol=2, socket_timeout=5) as client:
        client.set("before", "1")
    first = server.pid

    outage.tend()
    outage.tend()
    assert server.pid is None
    assert outage.is_on

    visitors.orders += outages.ORDERS
    visitors.failures += 1
    outage.tend()
    assert not outage.is_on
    assert outage.away is not None
    assert outage.away.failures == 1
    with redis.Redis.from_url(server.url, protocol=2, socket_timeout=5) as client:
        assert client.get("before") == b"1"
    assert [str(pid) in line for pid, line in zip((first, server.pid), said, strict=True)] == [True, True]

    outage.tend()
    assert server.pid is not None


@pytest.mark.usefixtures("soon")
def test_it_ends_without_orders_after_some_time_and_with_the_demo(
    server: PrivateServer, visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (0.0, 600.0):
        monkeypatch.setattr(outages, "LIMIT", limit)
        outage = Outage(server, visitors, seconds=None, say=lambda _: None)
        outage.tend()
        assert server.pid is None
        outage.tend()
        assert outage.is_on == bool(limit)
        outage.end()
        assert server.pid is not None
