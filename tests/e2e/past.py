"""What pictures show and a test has no time for: the counters of a shop that was busy for a day."""

import math
import random
import time
from collections import Counter
from typing import Any

from mq_django.conf import get_config
from mq_django.inspector import actions
from mq_django.stores.counters import DEPTH, bucket, latency_bucket, slot
from mq_django.transport.connections import get_client
from tests import seeding
from tests.e2e.settings import CROWD

#: Queue -> messages -> how many a minute there are, seconds that each takes, and the share that fails.
BUSY = {
    "emails": {
        "example_project.shop.tasks.send_receipt": (34, 0.12, 0.012),
        "example_project.shop.triggers.remind": (11, 0.09, 0.004),
        "example_project.shop.tasks.send_password_mail": (3, 0.1, 0.0),
    },
    "notifications": {"push": (88, 0.045, 0.03), "sms": (12, 0.3, 0.02), "email": (5, 0.1, 0.0)},
    "default": {"example_project.shop.tasks.send_newsletter": (1, 1.4, 0.0)},
    "orders:bookkeeping": {"order.placed": (34, 0.02, 0.0)},
    "orders:statistics": {"order.placed": (34, 0.006, 0.0)},
    "orders:stock": {"order.placed": (34, 0.01, 0.0)},
}

#: How long ago it began: before yesterday, with which today is compared.
MINUTES = 49 * 60


def crowd() -> None:
    """Let hundreds of queues have traffic, and some of them trouble."""
    dice = random.Random(7)
    for number, name in enumerate(CROWD):
        seeding.beat(name, consumers=2)
        seeding.publish_many(name, [("job", {"n": n}) for n in range(dice.choice((0, 0, 1, 3, 12, 40)))])
        for ago in range(30):
            count = round(20 * _tide(number * 17 + ago * 40) * dice.uniform(0, 1))
            at = slot(get_config().queue(name).keys, time.time() - ago * 60)
            _add(at.keys, (at.minute, None), Counter({f"{word}|": count for word in ("published", "handled")}))
    for name in ("billing-refunds", "search-index", "stock-levels"):
        for number in range(7):
            seeding.bury(name, "job", {"n": number}, error="TimeoutError: the partner did not reply in 10 s")
    actions.pause("payments-capture", who="ada", reason="the partner migrates")
    seeding.set_aside("emails-digest", "monthly")


def fill() -> None:
    """Count."""
    dice, now = random.Random(7), time.time()
    for queue, names in BUSY.items():
        keys = get_config().queue(queue).keys
        for ago in range(MINUTES, 1, -1):
            where = slot(keys, now - ago * 60)
            found: Counter[str] = Counter()
            for name, (rate, seconds, failing) in names.items():
                _minute(found, name, rate * _tide(ago) * dice.uniform(0.75, 1.25), seconds, failing, dice)
            _add(where.keys, (where.minute if ago < 90 else None, where.hour), found)
            depth = {"ready": round(9 * _tide(ago)), "pending": dice.randrange(3), "delayed": 6, "dead": 1}
            client = get_client("chores")
            for key, place in zip(where.keys, (where.minute, where.hour), strict=True):
                client.hset(key, mapping={f"{place}|{DEPTH}{state}|": count for state, count in depth.items()})
    keys = get_config().topics["orders"].keys
    for ago in range(2, MINUTES):
        where = slot(keys, now - ago * 60)
        count = round(34 * _tide(ago) * dice.uniform(0.75, 1.25))
        found = Counter({"published|order.placed": count, "published|": count})
        _add(where.keys, (where.minute if ago < 90 else None, where.hour), found)


def _tide(ago: int) -> float:
    """Return how busy it was so many minutes ago: evenings are, and now and then there is a sale."""
    return 0.7 + 0.35 * math.sin(ago / 230) + (0.8 if 14 <= ago <= 20 else 0.0)


def _minute(found: Counter[str], name: str, rate: float, seconds: float, failing: float, dice: random.Random) -> None:
    for _ in range(round(rate)):
        failed = dice.random() < failing
        took = dice.lognormvariate(math.log(seconds), 0.5)
        waited = dice.lognormvariate(math.log(6), 0.8)
        words = [
            "published",
            "retried" if failed else "handled",
            f"t{bucket(int(took * 1e6))}",
            f"w{latency_bucket(int(waited))}",
        ]
        for word in words:
            found[f"{word}|{name}"] += 1
            found[f"{word}|"] += 1


def _add(keys: tuple[str, str], slots: tuple[int | None, int | None], found: Counter[str]) -> None:
    pipeline: Any = get_client("chores").pipeline(transaction=False)
    for key, place in zip(keys, slots, strict=True):
        for field, count in found.items() if place is not None else ():
            pipeline.hincrby(key, f"{place}|{field}", count)
        if place is not None:
            pipeline.expire(key, 3 * 86_400)
    pipeline.execute()
