"""The outboxes of a test: the messages in them, and publishing them."""

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import call_command
from django.db import transaction
from shop.tasks import confirm

from mq_django import queues
from mq_django.errors import ConnectionLost
from mq_django.models import OutboxMessage


class Publishing:
    """Stands in for a model whose update publishes."""

    def __init__(self):
        self.objects = self

    def filter(self, pk):
        queues["emails"].publish("welcome", pk, outbox=True)
        return self

    def update(self, **fields):
        """Change nothing."""


pytestmark = pytest.mark.django_db


def names(records):
    return [record.name for record in records]


def test_a_message_is_a_row_until_the_commit(mq):
    with transaction.atomic():
        queues["emails"].publish("welcome", {"user": 7}, key="user:7", outbox=True)
    assert OutboxMessage.objects.count() == 1
    (waiting,) = mq.outbox
    assert (waiting.queue, waiting.name, waiting.data, waiting.key) == ("emails", "welcome", {"user": 7}, "user:7")
    assert names(mq.pending_commit) == ["welcome"]
    assert "1 message waits for the commit: call mq.commit()" in repr(mq.published("emails"))
    assert mq.relay() == 0
    assert mq.run() == []

    mq.commit()

    assert mq.outbox == []
    assert mq.published("emails", "welcome", data={"user": 7})
    assert [each.message.name for each in mq.messages("emails")] == ["welcome"]


def test_what_redis_did_not_get_is_relayed_later(mq):
    with mq.redis_down():
        queues["emails"].publish("welcome", 1, outbox=True)
        queues["default"].publish("reminder", 2, outbox=True)
        mq.commit()
        with pytest.raises(ConnectionLost):
            mq.relay()
    assert names(mq.outbox) == ["welcome", "reminder"]

    assert mq.relay() == 2
    assert mq.outbox == []
    assert [each.message.name for each in mq.messages("default")] == ["reminder"]
    assert mq.relay() == 0


def test_what_cannot_be_published_stays_in_the_outbox(mq, capsys):
    options = {"unique": "u", "unique_for": "handled", "on_conflict": "error", "outbox": True}
    queues["emails"].publish("welcome", 1, **options)
    queues["emails"].publish("welcome", 2, **options)

    mq.commit()

    assert [each.data for each in mq.outbox] == [2]
    call_command("mq", "outbox", "--set-aside")
    assert "Another message has this unique key" in capsys.readouterr().out
    assert [each.message.data for each in mq.messages("emails")] == [1]
    assert mq.relay() == 0
    assert len(mq.outbox) == 1


def test_a_rollback_takes_the_rows_back(mq):
    with pytest.raises(RuntimeError), transaction.atomic():
        queues["emails"].publish("welcome", 1, outbox=True)
        raise RuntimeError
    assert mq.outbox == []
    assert mq.commit() == 0


def test_a_handler_may_publish_through_the_outbox(mq, monkeypatch):
    monkeypatch.setattr("shop.tasks.Order", Publishing())
    confirm.enqueue(7)
    mq.commit()
    mq.run("default")
    assert mq.published("emails", "welcome", data=7)
    assert mq.outbox == []


@pytest.mark.django_db(transaction=True)
def test_a_real_commit_relays_at_once(mq):
    queues["emails"].publish("welcome", 1, outbox=True)
    assert mq.outbox == []
    assert mq.published("emails", "welcome")


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_asks_what_was_published(mq):
    """An event loop may not read the rows of an outbox."""

    async def publish():
        await queues["default"].apublish("reminder", 2, outbox=True)
        with mq.redis_down():
            await queues["emails"].apublish("welcome", 1, outbox=True)
        mq.assert_published("default", "reminder")
        with pytest.raises(AssertionError, match="found 0"):
            mq.assert_published("emails", "remind")
        return mq.published("emails", "remind"), await sync_to_async(lambda: mq.outbox)()

    found, waiting = async_to_sync(publish)()
    assert names(waiting) == ["welcome"]
    assert "1 message waits in an outbox: call mq.relay()" in repr(found)
