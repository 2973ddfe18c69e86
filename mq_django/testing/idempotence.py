"""Check that a message which is delivered again has the effects of one delivery."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.core import mail
from django.db import connections, transaction

from mq_django.conf import QueueConfig
from mq_django.consumers.worker.databases import Databases, databases_within
from mq_django.core.exceptions import class_name
from mq_django.core.limits import Limit
from mq_django.core.messages import Message
from mq_django.core.outcomes import Bury, Cancel, Expire, SetAside
from mq_django.errors import TestKitError
from mq_django.testing.database_rows import Database, Rows, counted, text_of
from mq_django.testing.faults import AFTER_EFFECT, BEFORE_HANDLER, BEFORE_ON_COMMIT, FatalRun
from mq_django.testing.function_messages import FunctionMessage, message_for
from mq_django.testing.queue_run import Handled
from mq_django.testing.recording import Recorder
from mq_django.testing.relaying import relay
from mq_django.testing.runs import ensure_groups, refuse_event_loop
from mq_django.testing.saved_keys import delete_all, without_keys
from mq_django.testing.single_run import SingleRun

#: The most differences of one kind of repetition that an error names.
MAX_SHOWN = 10

OUTSIDE = (
    "assert_idempotent() runs a message several times, and restores the database after each. That needs the "
    "transaction of a TestCase or of pytest.mark.django_db, and this test is in none."
)
NOT_HANDLED = "The message was not delivered to {where}: it may have expired"

#: What happens to the first of two deliveries -> a function that lets it happen.
Repetition = Callable[[QueueConfig, Databases, Message], object]


def _lost(config: QueueConfig, databases: Databases, message: Message) -> None:
    SingleRun(config, databases, only=message).lose_outcome()


def _crash(point: str) -> Repetition:
    def crash(config: QueueConfig, databases: Databases, message: Message) -> None:
        # Among others, because it is charged otherwise, and a crash in the only attempt would bury it.
        FatalRun(config, databases, point, only=message).die(among_others=True)

    return crash


REPETITIONS: dict[str, Repetition] = {
    "run twice": _lost,
    "a crash before the handler, then a second run": _crash(BEFORE_HANDLER),
    "a crash before the on-commit hooks, then a second run": _crash(BEFORE_ON_COMMIT),
    "a crash after the effect, then a second run": _crash(AFTER_EFFECT),
}


def assert_idempotent(function: Any, message: Any = None, *, ignore: Collection[str] = ()) -> None:
    """Check that a message has the same effects when it is delivered again: see MQ.assert_idempotent()."""
    __tracebackhide__ = True
    refuse_event_loop("await sync_to_async(mq.assert_idempotent)(...) in place of mq.assert_idempotent(...)")
    aliases = [found.alias for found in connections.all(initialized_only=True) if found.in_atomic_block]
    if not aliases:
        raise TestKitError(OUTSIDE)
    trial = Trial(message_for(function, message), aliases, Database.of(aliases, ignore))
    with without_keys(), _outbox_restored():
        reference = trial.state_after(None)
        found = {name: trial.state_after(first).differences_from(reference) for name, first in REPETITIONS.items()}
    text = "\n".join(f"- {name}:\n{_lines(list(lines))}" for name, lines in found.items() if lines)
    if text:
        raise AssertionError(f"{trial.subject.where} is not idempotent. In comparison with one run:\n{text}")


@dataclass(frozen=True, slots=True)
class State:
    """What there is after a run."""

    handled: Handled
    rows: Rows
    mails: Counter[str]
    messages: Counter[str]

    def differences_from(self, reference: "State") -> list[str]:
        """Return in what this differs, in words."""
        return [
            *self._outcome_from(reference),
            *self.rows.differences_from(reference.rows),
            *counted("mail", self.mails, reference.mails),
            *counted("message", self.messages, reference.messages),
        ]

    def _outcome_from(self, reference: "State") -> Iterator[str]:
        found, expected = self.handled, reference.handled
        if (type(found.outcome), found.error) != (type(expected.outcome), expected.error):
            yield f"the second run ends as {_outcome(found)}, not {_outcome(expected)}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A message that is handled again and again, each time from the same state."""

    subject: FunctionMessage
    aliases: Collection[str]
    database: Database

    def state_after(self, first: Repetition | None) -> State:
        """Handle the message, and return what there is afterwards.

        Args:
            first: lets something happen to a first delivery; None: there is only one delivery.
        """
        # Rate and concurrency limits would refuse the second delivery.
        config, message = self._unlimited(), self.subject.publication.message
        with _rolled_back(self.aliases), databases_within() as databases, Recorder() as recorder:
            self.database.reset_sequences()
            _empty_outbox()
            delete_all()
            ensure_groups()
            run = SingleRun(config, databases, only=message)
            self.subject.publish()
            if first is not None:
                first(config, databases, message)
            handled = run.finish(raise_errors=first is None)
            if handled is None or not _was_called(handled):
                raise TestKitError(NOT_HANDLED.format(where=self.subject.where))
            # After a crash before the on-commit hooks, what was published waits for a relay.
            relay()
            return State(handled, self.database.read(), _mails(), _messages(recorder))

    def _unlimited(self) -> QueueConfig:
        config = self.subject.config
        return replace(config, rate_limit=Limit(), concurrency=Limit()) if config.limits else config


def _was_called(handled: Handled) -> bool:
    outcome = handled.outcome
    return not isinstance(outcome, Expire | SetAside | Cancel) and not (
        isinstance(outcome, Bury) and outcome.reason == "expired"
    )


def _outcome(handled: Handled) -> str:
    return ": ".join(filter(None, [class_name(type(handled.outcome)), handled.error]))


def _messages(recorder: Recorder) -> Counter[str]:
    """Count the messages that were published."""
    return Counter(
        f"{record.name!r} in {record.queue!r} with {text_of(record.data)}"
        + (f" and the key {record.key!r}" if record.key is not None else "")
        for record in recorder.published()
    )


def _mails() -> Counter[str]:
    """Count the mails that were sent."""
    return Counter(f"{each.subject!r} to {', '.join(each.to)}" for each in getattr(mail, "outbox", ()))


def _empty_outbox() -> None:
    if hasattr(mail, "outbox"):
        mail.outbox.clear()


@contextmanager
def _outbox_restored() -> Iterator[None]:
    """Let `mail.outbox` have the same mails after a block. It stays the same list, to which tests refer."""
    before = list(getattr(mail, "outbox", ()))
    try:
        yield
    finally:
        if hasattr(mail, "outbox"):
            mail.outbox[:] = before


@contextmanager
def _rolled_back(aliases: Collection[str]) -> Iterator[None]:
    """Roll the databases back after a block."""
    with ExitStack() as stack:
        for alias in aliases:
            stack.enter_context(transaction.atomic(using=alias))
        try:
            yield
        finally:
            for alias in aliases:
                transaction.set_rollback(True, using=alias)


def _lines(differences: list[str]) -> str:
    shown = [f"  {difference:.500}" for difference in differences[:MAX_SHOWN]]
    more = len(differences) - len(shown)
    return "\n".join([*shown, f"  and {more} more"] if more else shown)
