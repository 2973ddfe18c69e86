"""Fill queues and measure every page of the admin, in a process of its own; print what was measured as JSON."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.ours.admin_settings"
django.setup()

from django.contrib.auth.models import User  # noqa: E402 - needs the project to be set up
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402

from benchmarks import messages  # noqa: E402
from mq_django import queues, topics  # noqa: E402
from mq_django.admin.queue_admin import ROUTES  # noqa: E402
from mq_django.admin.ui import text  # noqa: E402
from mq_django.conf import get_config  # noqa: E402
from mq_django.core.messages import Bury, SetAside  # noqa: E402
from mq_django.inspector import message_lists  # noqa: E402
from mq_django.inspector import topics as inspected  # noqa: E402
from mq_django.stores import open_members, open_store  # noqa: E402
from mq_django.stores.base import Settlement  # noqa: E402
from mq_django.stores.counters import slot  # noqa: E402
from mq_django.transport.connections import get_client  # noqa: E402
from mq_django.transport.sessions import Pooled, Session  # noqa: E402

BASE = "/admin/mq_django/queue/"
#: The queue that has everything, and one that others wait in.
FULL, NEXT = "bench0", "bench1"
#: The topic.
LOG = "benchlog"
CHUNK = 500
ROUNDS = 40
NAMES = [f"shop.tasks.task{number}" for number in range(20)]
ERRORS = ["ValueError: no", "TimeoutError: too slow", "shop.errors.Refused: the bank said no", "KeyError: 'total'"]

#: (Route, path, whether it shows all queues); what stands in braces is filled in.
PAGES = [
    ("changelist", "", True),
    ("stats", "stats.json", True),
    ("consumers", "consumers/", True),
    ("consumers_stats", "consumers.json", True),
    ("quiet", "consumers/s1-c0/quiet/", True),
    ("stop", "consumers/s1-c0/stop/", True),
    ("change", f"{FULL}/change/", False),
    ("change", f"{FULL}/change/?span=day", False),
    ("change", f"{FULL}/change/?span=week", False),
    ("queue_stats", f"{FULL}/stats.json", False),
    ("messages", f"{NEXT}/ready/", False),
    ("messages", f"{NEXT}/ready/?name=nothing", False),
    ("messages", f"{NEXT}/pending/", False),
    ("message", NEXT + "/message/ready/{ready}/", False),
    ("messages", f"{FULL}/delayed/", False),
    ("messages", f"{FULL}/delayed/?after=450000", False),
    ("messages", f"{FULL}/delayed/?name=nothing", False),
    ("messages", f"{FULL}/delayed/?id=m999999", False),
    ("messages", f"{FULL}/unhandled/", False),
    ("message", f"{FULL}/message/delayed/m999999/", False),
    ("messages", f"{FULL}/dead/", False),
    ("messages", f"{FULL}/dead/?error=nothing", False),
    ("messages", FULL + "/dead/?id={dead_id}", False),
    ("dead_groups", f"{FULL}/dead/groups/", False),
    ("message", FULL + "/message/dead/{dead}/", False),
    ("dead_edit", FULL + "/dead/{dead}/edit/", False),
    ("act_on_all", f"{FULL}/dead/all/redrive/", False),
    ("act_on_all", f"{FULL}/dead/all/delete/", False),
    ("job", f"{FULL}/dead/job/", False),
    ("job_stats", f"{FULL}/dead/job/stats.json", False),
    ("job_cancel", f"{FULL}/dead/job/cancel/", False),
    ("messages", f"{FULL}/parked/", False),
    ("act_on_all", f"{NEXT}/ready/all/delete/", False),
    ("history", f"{FULL}/history/", False),
    ("figures", f"{FULL}/figures/?span=week", False),
    ("change", f"{LOG}/change/", False),
    ("topic_stats", f"{LOG}/topic.json", False),
    ("topic_figures", f"{LOG}/published/", False),
    ("log", f"{LOG}/log/", False),
    ("log", f"{LOG}/log/?name=nothing", False),
    ("log_entry", LOG + "/log/{logged}/", False),
    ("change", f"{LOG}:readers/change/", False),
    ("seek", f"{LOG}:readers/seek/", False),
]

#: Routes that only take a button's form, or send a file of any length.
NOT_LOOKED_AT = {
    *("pause", "resume", "cancel", "chosen", "dead_export", "unsubscribe"),
    *("old_list", "old_waiting", "old_entry", "old_handled", "old_dead"),
    *(f"schedule_{verb}" for verb in ("pause", "resume", "fire", "forget")),
}


def fill(*, waiting: int, dead: int) -> None:
    """Let many messages wait, be dead, be ready and be held."""
    _in_chunks(dead, _bury)
    _in_chunks(waiting, _delay)
    topics[LOG].group("readers").subscribe()
    some = [(NAMES[n % len(NAMES)], messages.make(n)) for n in range(CHUNK)]
    for _ in range(waiting // 10 // CHUNK):
        queues[NEXT].publish_many(some)
        topics[LOG].publish_many(some)
    _take(NEXT, 200)
    queues[FULL].publish_many([("nobody.knows", n) for n in range(CHUNK)])
    store = open_store(get_config().queue(FULL), Pooled(get_client("chores")))
    store.settle("s1-c0", [Settlement(item, SetAside()) for item in _take(FULL, CHUNK)])
    for name in get_config().queues:
        _consume(name)
    _count()


def _in_chunks(count: int, act: Callable[[range], None]) -> None:
    for start in range(0, count, CHUNK):
        act(range(start, min(count, start + CHUNK)))


def _delay(numbers: range) -> None:
    # As the smallest producer does it: bodies in a hash, due times in a sorted set.
    keys, client = get_config().queue(FULL).keys, get_client("chores")
    later = int(time.time() * 1000) + 3_600_000
    bodies: dict[Any, Any] = {
        f"m{n}": json.dumps({"type": NAMES[n % len(NAMES)], "data": messages.make(n)}) for n in numbers
    }
    pipeline = client.pipeline(transaction=False)
    pipeline.hset(keys.waiting, mapping=bodies)
    pipeline.zadd(keys.due, {f"m{n}": later + n for n in numbers})
    pipeline.execute()


def _bury(numbers: range) -> None:
    queues[FULL].publish_many([(NAMES[n % len(NAMES)], messages.make(n)) for n in numbers])
    store = open_store(get_config().queue(FULL), Pooled(get_client("chores")))
    letters = [
        Settlement(item, Bury(ERRORS[number % len(ERRORS)], "Traceback ...", reason="attempts"))
        for number, item in enumerate(_take(FULL, len(numbers)))
    ]
    store.settle("s1-c0", letters)


def _take(name: str, count: int) -> list[Any]:
    store = open_store(get_config().queue(name), Pooled(get_client("chores")))
    return list(store.take("s1-c0", count=count))


def _consume(name: str) -> None:
    told = {f"s1-c{n}": {"host": "web1", "pid": n, "since_ms": 1_790_000_000_000, "threads": 8} for n in range(4)}
    open_members(get_config().queue(name), Pooled(get_client("chores"))).beat("s1", {"version": "0.1.0"}, told)


def _count() -> None:
    """Count for a week, by name, in the queue that has everything."""
    keys, client, now = get_config().queue(FULL).keys, get_client("chores"), time.time()
    for hour in range(168):
        where = slot(keys, now - hour * 3600)
        fields: dict[Any, Any] = {
            f"{where.hour}|{what}|{name}": 7
            for what in ("published", "handled", "retried", "buried", "t3", "t5", "t8")
            for name in ["", *NAMES]
        }
        client.hset(where.keys[1], mapping=fields)
    where = slot(keys, now)
    minutes: dict[Any, Any] = {
        f"{minute}|{what}|{name}": 7
        for minute in range(60)
        for what in ("published", "handled", "retried", "buried", "t3", "t5", "t8")
        for name in ["", *NAMES]
    }
    client.hset(where.keys[0], mapping=minutes)


class Counter:
    """Counts what is sent to Redis."""

    def __init__(self) -> None:
        self.count = 0
        self._send = Session.send
        counter = self

        def send(session: Session, commands: Any) -> None:
            counter.count += len(commands)
            counter._send(session, commands)

        Session.send = send  # type: ignore[method-assign,assignment]  # to be counted, whoever sends


def measure() -> dict[str, dict[str, float]]:
    """Return p50 and p95 in ms and the commands of each page."""
    missing = {name for *_, name in ROUTES} - {name for name, _, _ in PAGES} - NOT_LOOKED_AT
    if missing:
        raise SystemExit(f"Pages that are not measured: {', '.join(sorted(missing))}")
    call_command("migrate", verbosity=0)
    client, counter = Client(), Counter()
    client.force_login(User.objects.create_superuser("boss", password="x"))
    (letter,) = message_lists.messages(FULL, "dead", limit=1).rows
    ready = message_lists.messages(NEXT, "ready", limit=1).rows[0].ref
    places = {
        "dead": letter.ref,
        "dead_id": letter.id,
        "ready": text.to_url(ready.encode()),
        "logged": inspected.topic(LOG).last,
    }
    found = {}
    for _, path, shows_all in PAGES:
        address = BASE + path.format(**places)
        took = []
        for _ in range(ROUNDS + 1):
            _keep_alive(path)
            counter.count, began = 0, time.perf_counter()
            response = client.get(address)
            took.append((time.perf_counter() - began) * 1000)
            if response.status_code not in (200, 302):
                raise SystemExit(f"{address} answers {response.status_code}")
        ordered = sorted(took[1:])
        found[path or "overview"] = {
            "p50": ordered[len(ordered) // 2],
            "p95": ordered[int(len(ordered) * 0.95)],
            "commands": counter.count,
            "over": counter.count - 2 * (len(get_config().queues) if shows_all else 1),
        }
    return found


def _keep_alive(path: str) -> None:
    """Beat for the consumers of the queue that a page shows."""
    name = path.partition("/")[0]
    _consume(name if name in get_config().queues or name == f"{LOG}:readers" else FULL)


if __name__ == "__main__":
    fill(waiting=int(sys.argv[1]), dead=int(sys.argv[2]))
    json.dump(measure(), sys.stdout)
