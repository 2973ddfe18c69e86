"""What a poll of the admin's pages costs with 300 queues and 50 consumers: `python -m benchmarks.many_queues`.

Prints for each page and its polls: ms of this process and in all, round trips to Redis, KiB as sent and as it is.
"""

import gzip
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import django

from mq_django.transport.private_server import PrivateServer

QUEUES, SUPERVISORS, PER_SUPERVISOR = 300, 25, 2
#: One queue in so many has traffic.
BUSY_EVERY = 5
ROUNDS, TABS = 7, 20
BASE = "/admin/mq_django/queue/"
#: What a page and its polls are: the page's path, and that of its polls.
PAGES = (("", "stats.json"), ("consumers/", "consumers.json"), ("bench5/change/", "bench5/stats.json"))


class Cost(NamedTuple):
    """What a response cost: ms of this process, ms in all, round trips, bytes as sent and uncompressed."""

    cpu: float
    wall: float
    pipelines: int
    sent: int
    full: int


def seed() -> None:
    """Register consumers as their heartbeats do, and let some queues have traffic."""
    from mq_django import queues  # noqa: PLC0415 - needs the project to be set up
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.stores import open_store  # noqa: PLC0415
    from mq_django.stores.counters import Slots  # noqa: PLC0415
    from mq_django.transport.connections import get_client  # noqa: PLC0415
    from mq_django.transport.sessions import Pooled  # noqa: PLC0415

    transport = Pooled(get_client("chores"))
    running: dict[str, dict[str, list[Any]]] = {}
    for number, name in enumerate(get_config().queues):
        if number % BUSY_EVERY:
            continue
        queues[name].publish_many([(f"shop.tasks.task{number}", {"n": n}) for n in range(3)])
        consumer = f"web{number % SUPERVISORS}-{number % SUPERVISORS}-abcdef-c{number % PER_SUPERVISOR}"
        for item in open_store(get_config().queue(name), transport).take(consumer, count=2):
            running.setdefault(consumer, {}).setdefault(name, []).append([item.stream, item.entry.decode(), 1500])
        transport.pipeline(
            [Slots(get_config().queue(name).keys).add_command({("handled", "a"): number, ("published", "a"): number})]
        )
    beat(running)


def beat(running: Any) -> None:
    """Send a heartbeat of every supervisor to every queue, by the description that supervisors send."""
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.stores import open_members  # noqa: PLC0415
    from mq_django.transport.connections import get_client  # noqa: PLC0415
    from mq_django.transport.sessions import Pooled  # noqa: PLC0415

    transport, now = Pooled(get_client("chores")), int(time.time() * 1000)
    for name in get_config().queues:
        members = open_members(get_config().queue(name), transport)
        for one in range(SUPERVISORS):
            process = {"host": f"web{one}", "pid": 4242, "since_ms": now - 3_600_000, "version": "0.1.0"}
            process |= {"boot": "7c1e7e0c-6f4a-4b3b-9d0e-1f1f1f1f1f1f", "pids": "pid:[4026531836]", "started": "123456"}
            supervisor = f"web{one}-{one}-abcdef"
            described = {
                consumer: {
                    **process,
                    "threads": 4,
                    "ward": False,
                    "state": "running",
                    "busy": [len(running.get(consumer, {})) % 4, 0],
                    "running": running.get(consumer, {}).get(name, []),
                    "handled": int(name[5:]) * 100,
                    "failed": 0,
                }
                for consumer in (f"{supervisor}-c{number}" for number in range(PER_SUPERVISOR))
            }
            members.beat(supervisor, {**process, "visibility_ms": 30_000}, described)


def keep_alive() -> None:
    """Let all supervisors have sent a heartbeat just now."""
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.transport.connections import get_client  # noqa: PLC0415

    now = int(time.time() * 1000)
    pipeline = get_client("chores").pipeline(transaction=False)
    for name in get_config().queues:
        seen: Any = {f"seen:web{one}-{one}-abcdef": now for one in range(SUPERVISORS)}
        pipeline.hset(get_config().queue(name).keys.consumers, mapping=seen)
    pipeline.execute()


@contextmanager
def counting() -> Iterator[list[Any]]:
    """Count round trips to Redis."""
    from mq_django.transport.sessions import Session  # noqa: PLC0415

    sent: list[Any] = []
    send = Session.send

    def counted(session: Session, commands: Any) -> Any:
        sent.append(1)
        return send(session, commands)

    with mock.patch.object(Session, "send", counted):
        yield sent


def ask(client: Any, path: str, **headers: str) -> tuple[Cost, Any]:
    """Return what a request cost, and its response."""
    with counting() as sent:
        cpu, wall = time.process_time(), time.perf_counter()
        response = client.get(BASE + path, headers={"Accept-Encoding": "gzip", **headers})
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if response.status_code != 200:
        raise SystemExit(f"{path} answers {response.status_code}: {response.content[:300]!r}")
    body = response.content
    full = len(gzip.decompress(body)) if response.get("Content-Encoding") == "gzip" else len(body)
    return Cost(cpu * 1000, wall * 1000, len(sent), len(body), full), response


def line_of(what: str, costs: list[Cost]) -> str:
    """Return the medians as a line."""
    middle = [statistics.median(values) for values in zip(*costs, strict=True)]
    return f"{what:32}{middle[0]:9.0f}{middle[1]:9.0f}{middle[2]:7.0f}{middle[3] / 1024:9.1f}{middle[4] / 1024:9.1f}"


def work(number: int) -> None:
    """Let every busy queue handle messages, so that its row changes."""
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.stores.counters import Slots  # noqa: PLC0415
    from mq_django.transport.connections import get_client  # noqa: PLC0415
    from mq_django.transport.sessions import Pooled  # noqa: PLC0415

    transport = Pooled(get_client("chores"))
    for name in list(get_config().queues)[::BUSY_EVERY]:
        transport.pipeline([Slots(get_config().queue(name).keys).add_command({("handled", "a"): 100 + number})])
    keep_alive()


def measure() -> None:
    """Print the costs of each page, of its polls, and of the polls of many tabs at once."""
    from django.contrib.auth.models import User  # noqa: PLC0415
    from django.core.management import call_command  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("boss", password="x"))
    print(f"{'':32}{'cpu ms':>9}{'ms':>9}{'pipelines':>7}{'KiB':>9}{'plain':>9}")
    for page, polls in PAGES:
        costs: dict[str, list[Cost]] = {"": [], " differences": [], " all": []}
        for number in range(ROUNDS):
            work(number)
            cost, response = ask(client, page)
            costs[""].append(cost)
            shown = dict(re.findall(r'data-mq-part="(\w+)" data-mq-have="([^"]*)"', response.content.decode()))
            work(number + 1)
            time.sleep(1.1)
            costs[" differences"].append(ask(client, polls, **{"X-MQ-Have": json.dumps(shown)})[0])
            time.sleep(1.1)
            keep_alive()
            costs[" all"].append(ask(client, polls)[0])
        for what, found in costs.items():
            print(line_of(f"{polls if what else page or 'overview'}{what}", found))
        time.sleep(1.1)
        keep_alive()
        tabs = [ask(client, polls, **{"X-MQ-Have": json.dumps(shown)})[0] for _ in range(TABS)]
        print(f"{f'{polls} {TABS} tabs':32}{sum(cost.cpu for cost in tabs):9.0f}{sum(cost.wall for cost in tabs):9.0f}")


def main() -> int:
    """Start a Redis, fill it, and measure."""
    from mq_django.transport.connections import close_clients  # noqa: PLC0415

    with PrivateServer(tcp=True, settings={"save": "", "maxmemory-policy": "noeviction"}) as server:
        os.environ |= {
            "BENCH_REDIS_URL": server.url,
            "BENCH_QUEUES": str(QUEUES),
            "DJANGO_SETTINGS_MODULE": "benchmarks.ours.admin_settings",
        }
        django.setup()
        seed()
        measure()
        close_clients()
    return 0


if __name__ == "__main__":
    sys.exit(main())
