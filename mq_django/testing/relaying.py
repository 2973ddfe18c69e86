"""The outboxes of a test: the messages in them, and publishing them as a relay does."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from mq_django.conf import DeliveryOptions, get_config
from mq_django.consumers.supervisor.outbox_service import announce_published, destinations_of
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication
from mq_django.errors import DecodeError, MQError
from mq_django.models import OutboxMessage
from mq_django.outbox.partition_relay import with_parts
from mq_django.outbox.relay import DatabaseRelay
from mq_django.outbox.rows import publication_of
from mq_django.testing.published import Published, published_of
from mq_django.testing.transactions import uncommitted_rows
from mq_django.transport import test_mode

logger = get_logger(__name__)

#: The claim of rows that no relay has.
_HIDDEN = -3


def waiting() -> list[Published]:
    """Return the messages in the outboxes of this test that are not published, in order, also those set aside."""
    found = []
    for alias in sorted(test_mode.outboxes):
        for row in OutboxMessage.objects.using(alias).exclude(batch__lt=0).order_by("id"):
            publication = _publication(row)
            if publication is not None:
                found.append(published_of(publication))
    return found


def _publication(row: OutboxMessage) -> Publication | None:
    config = get_config()
    whole: DeliveryOptions | None = config.queues.get(row.destination) or config.topics.get(row.destination)
    try:
        return None if whole is None else publication_of(row, with_parts(whole, row.parts))
    except DecodeError:
        return None


def relay() -> int:
    """Publish the messages in the outboxes of this test, as a relay does, and return their number.

    Messages that wait for the commit of the test's transaction stay: mq.commit() publishes them. Those for a full queue
    stay, too. Messages that cannot be published are set aside.

    Raises:
        ConnectionLost, StoreError: Redis cannot be reached, or refuses. The messages stay in the outbox.
    """
    published = 0

    def announce(destination: DeliveryOptions, publication: Publication, message_id: str) -> None:
        nonlocal published
        published += 1
        announce_published(destination, publication, message_id)

    destinations = {each.name: each for each in destinations_of(get_config())}
    for alias in sorted(test_mode.outboxes):
        found = DatabaseRelay(alias, destinations, announce, take_over=0)
        with _without_uncommitted(alias):
            # Claims of all partitions, until nobody makes progress.
            while any([step() for _, step in found.steps()]):  # noqa: C419 - each step is made
                pass
    return published


@contextmanager
def _without_uncommitted(alias: str) -> Iterator[None]:
    """Hide the rows that wait for the commit of the test's transaction, as they are hidden from a relay."""
    rows = OutboxMessage.objects.using(alias).filter(message_id__in=uncommitted_rows(alias))
    hidden = list(rows.filter(batch=None).values_list("pk", flat=True))
    rows = OutboxMessage.objects.using(alias).filter(pk__in=hidden)
    rows.update(batch=_HIDDEN)
    try:
        yield
    finally:
        rows.update(batch=None)


def relay_after_commit(alias: str) -> None:
    """Publish what a transaction has written, at once: the relay of a test. Rows that fail stay in the outbox."""
    try:
        with transaction.atomic(using=alias):
            relay()
    except MQError as error:
        logger.info("The messages stay in the outbox: %s", error)
