"""Relays that a test runs step by step, and what they have done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.publication import Publication
from mq_django.models import OutboxMessage, OutboxState
from mq_django.outbox.relay import DatabaseRelay, PartitionRelay
from mq_django.outbox.rows import COLUMNS, values_of


def relay(alias: str, *, take_over: float = 0.0) -> DatabaseRelay:
    """Return a relay, like that of another process each time."""
    config = get_config()
    return DatabaseRelay(alias, {**config.queues, **config.topics}, lambda *_: None, take_over=take_over)


def run(found: DatabaseRelay) -> None:
    """Run a relay until there is nothing to do at once."""
    while any([step() for _, step in found.steps()]):  # noqa: C419 - all of them
        pass


def partition(alias: str, queue: str, part: int = -1) -> PartitionRelay:
    """Return the relay of one queue, or of one of its partitions."""
    return PartitionRelay(relay(alias).tables, get_config().queues[queue], part, lambda *_: None)


def claimed(found: PartitionRelay) -> PartitionRelay:
    """Return a relay that has claimed rows, and has published nothing."""
    claim = found._tables.claim(found.destination, found.part, found.parts)
    assert claim is not None
    found.resume(claim)
    return found


def rows(alias: str) -> Any:
    """Return the rows of an outbox, in their order."""
    return OutboxMessage.objects.using(alias).order_by("pk")


def states(alias: str) -> Any:
    """Return the states of an outbox, without the locks."""
    return OutboxState.objects.using(alias).exclude(parts=0).order_by("pk")


def ready(redis_client: Any, queue: str) -> list[str]:
    """Return the ids of the ready messages of a queue or partition, in their order."""
    keys = get_config().queue(queue).keys
    return [fields[b"id"].decode() for _, fields in redis_client.xrange(keys.ready)]


def publish(alias: str, queue: str, count: int, **options: Any) -> list[str]:
    """Write rows for messages, and return their ids."""
    return queues[queue].publish_many([("name", {"n": n}) for n in range(count)], using=alias, **options)


@contextmanager
def rolled_back(alias: str) -> Iterator[None]:
    """Begin a transaction, or a savepoint, that is rolled back."""
    with transaction.atomic(using=alias):
        yield
        transaction.set_rollback(True, using=alias)


def row_of(publication: Publication) -> OutboxMessage:
    """Return the row that a publish writes."""
    return OutboxMessage(**dict(zip(COLUMNS, values_of([publication])[0], strict=True)))
