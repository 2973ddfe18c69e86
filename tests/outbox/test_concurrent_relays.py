"""Several relays at once, which take claims from each other all the time, and stop in the middle."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, connections

from mq_django.outbox.relay import DatabaseRelay, PartitionRelay
from tests.outbox.relays import publish, ready, relay, rows, run, states

pytestmark = pytest.mark.usefixtures("quick")


class Stopped(Exception):
    """A relay ends here, and another one begins."""


def begin_anew(alias: str, seed: int) -> DatabaseRelay:
    """Return a relay that stops at random chunks, before or after they are published."""
    chance, found = random.Random(seed), relay(alias)
    make = found._partition

    def partition(name: str, parts: int, part: int) -> PartitionRelay:
        one = make(name, parts, part)
        send = PartitionRelay._send

        def stop_sometimes(*args):
            if chance.random() < 0.1:
                raise Stopped
            send(one, *args)
            if chance.random() < 0.1:
                raise Stopped

        one._send = stop_sometimes
        return one

    found._partition = partition
    return found


IN_PARTITIONS = {"PARTITIONS": 3, "ORDERED": True}


@pytest.mark.parametrize(
    ("alias", "options"),
    [("sqlite", IN_PARTITIONS), ("postgresql", {}), ("mariadb", IN_PARTITIONS)],
    indirect=["alias"],
)
def test_relays_in_each_others_way_publish_each_row_once(alias, mq_settings, redis_client, monkeypatch, options):
    mq_settings(QUEUES={"mails": {"OUTBOX": True, **options}})
    monkeypatch.setattr("mq_django.outbox.relay.ROWS", 20)
    monkeypatch.setattr("mq_django.outbox.claims.ROWS", 70)
    ids = {key: publish(alias, "mails", 200, key=key) for key in ("a", "b", "c")}

    def work(number):
        try:
            for attempt in range(100):
                try:
                    run(begin_anew(alias, 1000 * number + attempt))
                except (Stopped, DatabaseError):
                    continue
                if not rows(alias).exists():
                    return
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    run(relay(alias))

    places = [f"mails.{n}" for n in range(3)] if "PARTITIONS" in options else ["mails"]
    found = [message_id for name in places for message_id in ready(redis_client, name)]
    for key, own in ids.items():
        wanted = set(own)
        assert [message_id for message_id in found if message_id in wanted] == own, key
    assert len(found) == 600
    assert not rows(alias).exists()
    assert not states(alias).exclude(token="").exists()
