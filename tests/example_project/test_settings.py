"""Where the example project keeps its queues and its cache: on a Redis server that is there, or on one of its own."""

import os
import sys
from pathlib import Path

from example_project.settings import next_database
from mq_django.transport.private_server import PrivateServer
from tests.shell import ran

#: What `manage.py shell` does.
PUBLISH = """
from django.core.cache import caches
from django.core.management import call_command
from mq_django import queues
call_command("check", fail_level="WARNING")
cache = caches["default"]
cache.set("a", 1)
queues["imports"].publish("x", None)
cache.clear()
print(cache.get("a"), type(cache).__module__)
call_command("mq", "status")
"""


def shell(folder: Path, *, url: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = ran(
        [sys.executable, "example_project/manage.py", "shell", "-v0", "--command", PUBLISH],
        env={**env, "EXAMPLE_PROJECT_DIR": str(folder), "MQ_REDIS_URL": url},
    )
    return done.stdout


def ready(status: str) -> int:
    (row,) = (line.split() for line in status.splitlines() if line.startswith("imports "))
    return int(row[2])


def test_clearing_the_cache_leaves_the_queues_on_the_same_server(tmp_path: Path) -> None:
    with PrivateServer() as server:
        said = shell(tmp_path, url=server.url)
    assert "None django_redis.cache\n" in said
    assert ready(said) == 1
    assert not (tmp_path / "redis").exists()


def test_without_a_server_the_project_starts_its_own(tmp_path: Path) -> None:
    said = shell(tmp_path, url="")
    assert "locmem" in said
    assert ready(said) == 1
    assert (tmp_path / "redis" / "socket").exists()


def test_the_cache_has_the_next_database(subtests):
    for url, cache in [
        ("redis://127.0.0.1:6380", "redis://127.0.0.1:6380?db=1"),
        ("rediss://user:secret@example.org:6380/2", "rediss://user:secret@example.org:6380/2?db=3"),
        ("unix:///run/redis.sock?db=4&password=x", "unix:///run/redis.sock?db=5&password=x"),
    ]:
        with subtests.test(url=url, cache=cache):
            assert next_database(url) == cache
