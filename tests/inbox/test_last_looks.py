"""What may have been committed is not buried before somebody has looked into the inbox."""

from datetime import timedelta

import pytest
from django.db import OperationalError

from mq_django import registry
from mq_django.conf import get_config
from mq_django.consumers.decisions import LAST_LOOKS, NOT_INTERRUPTED, RAN_AT_DEATH, Evidence, settlement
from mq_django.consumers.shared_state import FAILED, Receipt
from mq_django.consumers.worker import once_call
from mq_django.core.messages import ACK, Bury, Delivery, HandBack, Message, Retry
from mq_django.core.retries import READY, Attempt, with_attempt
from mq_django.inbox import once
from mq_django.registry import Handler
from tests.inbox.conftest import ALIAS, on_each_database


def history(error):
    return with_attempt("", Attempt(READY, 3, "me", None, None, error))


@pytest.fixture
def dies(mq_settings, monkeypatch):
    """How the supervisor settles the delivery of an attempt during which a process has died."""
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
    monkeypatch.setattr(registry, "_handlers", {})

    def settle(attempt, *, using=ALIAS, state=None, late=False):
        entry = Handler(name="n", queue="default", call=print, where="n", once=using)
        monkeypatch.setattr(registry, "_handlers", {("default", "n"): entry})
        item = Delivery(Message("m", "n", 1, "default", attempt), 0, b"1-1", b"1")
        receipt = Receipt.of(0, 0, b"1-1")
        evidence = Evidence(
            results={} if state is None else {receipt: state}, running=[receipt], late=[receipt] if late else ()
        )
        return settlement(get_config().queue("default"), 0, item, evidence)

    return settle


class TestSupervisor:
    def test_an_attempt_before_the_last_is_as_any_other(self, dies):
        assert isinstance(dies(2).outcome, Retry)
        assert dies(2).outcome == dies(2, using=None).outcome

    def test_the_last_one_is_followed_by_a_look(self, dies):
        assert isinstance(dies(3, using=None).outcome, Bury)
        assert dies(3).outcome == Retry(delay=timedelta(0), error=RAN_AT_DEATH)
        assert dies(3, late=True).outcome == Retry(delay=timedelta(0), error=NOT_INTERRUPTED)

    def test_what_certainly_failed_is_buried(self, dies):
        assert isinstance(dies(3, state=FAILED).outcome, Bury)

    def test_looks_that_end_their_processes_end(self, dies):
        assert isinstance(dies(2 + LAST_LOOKS).outcome, Retry)
        outcome = dies(3 + LAST_LOOKS).outcome
        assert isinstance(outcome, Bury)
        assert outcome.reason == "uncertain"


class TestConsumer:
    def test_a_committed_message_is_acked(self, consumer, effects, using):
        consumer.handle(effects.add, once=using)
        consumer.run(attempt=3)
        assert consumer.run(attempt=4, history=history(RAN_AT_DEATH)) == ACK
        assert effects.all() == ["m"]

    @on_each_database
    def test_any_other_is_buried_without_its_handler(self, consumer, effects, using, rows):
        consumer.handle(effects.add, once=using)
        for error, reason in ((RAN_AT_DEATH, "crashed"), (NOT_INTERRUPTED, "attempts")):
            outcome = consumer.run(attempt=4, history=history(error))
            assert (type(outcome), outcome.error, outcome.reason) == (Bury, error, reason)
        assert (effects.all(), rows()) == ([], [])

    def test_an_attempt_after_others_failed_runs(self, consumer, effects, using):
        """MAX_ATTEMPTS was higher when the message was retried."""
        consumer.handle(effects.add, once=using)
        assert consumer.run(attempt=4, history=history("ValueError: broken")) == ACK
        assert effects.all() == ["m"]


@pytest.fixture
def broken(monkeypatch):
    def fail(*_):
        raise OperationalError("the database is away")

    monkeypatch.setattr(once_call, "BUSY_PAUSE", 0.0)
    monkeypatch.setattr(once.Entries, "add", fail)
    monkeypatch.setattr(once.Entries, "find", fail)


def test_a_database_that_is_away_charges_no_repeat(consumer, effects, using, broken):
    """An attempt that was charged could be the last one of a message that was handled."""
    consumer.handle(effects.add, once=using)
    assert consumer.run(attempt=2) == HandBack()
    assert isinstance(consumer.run(attempt=1), Retry)
    assert effects.all() == []
