"""Check that a message which is delivered again has the effects of one delivery."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from django.apps import apps
from django.core import mail
from django.core.exceptions import FieldDoesNotExist
from django.core.management.color import no_style
from django.db import DEFAULT_DB_ALIAS, connections, router, transaction
from django.db.models import AutoField, Field, Model

from mq_django.conf import QueueConfig
from mq_django.consumers.worker.databases import Databases, databases_within
from mq_django.core.limits import Limit
from mq_django.core.messages import Bury, Cancel, Expire, Message, SetAside
from mq_django.core.texts import class_name, repr_of
from mq_django.errors import TestKitError
from mq_django.models import OutboxMessage
from mq_django.outbox.claims import RETAINED
from mq_django.producers.asynchronous import refuse_event_loop
from mq_django.testing.faults import AFTER_EFFECT, BEFORE_HANDLER, BEFORE_ON_COMMIT, FatalRun, SingleRun
from mq_django.testing.published import FunctionMessage, message_for
from mq_django.testing.recording import Recorder
from mq_django.testing.runs import Handled, ensure_groups
from mq_django.testing.test_state import delete_all, without_keys
from mq_django.testing.transactions import relay

# Read all rows of the databases of a test, and compare the changes that two runs have made.

#: How many references from one new row to another are followed.
MAX_DEPTH = 5

#: Rows about runs in the inbox, and about a relay's claims, are no effects of a handler.
NO_EFFECTS = frozenset(
    {"mq_django.InboxMessage", "mq_django.InboxPass", "mq_django.OutboxState", "mq_django.OutboxIdentity"}
)

#: The values of a row by the name of the field.
Row = Mapping[str, Any]


def meta_of(model: type[Model]) -> Any:
    """Return what Django knows about a model."""
    return model._meta  # noqa: SLF001 - public in all but its name


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a model in one database."""

    alias: str
    model: type[Model]
    ignored: frozenset[str]

    @property
    def label(self) -> str:
        """Return the name of the model, and of the database if it is not the default one."""
        _, label = self.key
        return label if self.alias == DEFAULT_DB_ALIAS else f"{label} in database {self.alias!r}"

    @property
    def key(self) -> tuple[str, str]:
        """Return what identifies the table."""
        return self.alias, meta_of(self.model).label

    def fields(self) -> Iterator["Field[Any, Any]"]:
        """Yield the fields that have a column in this table and are compared."""
        yield from (each for each in meta_of(self.model).local_concrete_fields if each.name not in self.ignored)

    def read(self) -> dict[Any, Row]:
        """Return all rows by primary key."""
        names = [each.attname for each in self.fields()]
        # Unlike others, this manager leaves no row out.
        rows = self.model._base_manager.using(self.alias)  # noqa: SLF001
        if self.model is OutboxMessage:
            # The messages of these rows are compared as those that were published.
            rows = rows.exclude(batch=RETAINED)
        found = rows.values_list("pk", *names)
        return {pk: dict(zip(names, values, strict=True)) for pk, *values in found}

    def makes_keys(self) -> bool:
        """Return whether new rows get a primary key that differs from run to run."""
        key: Any = meta_of(self.model).pk
        while key.remote_field is not None:
            key = key.target_field
        return isinstance(key, AutoField) or key.has_default()


@dataclass(frozen=True, slots=True)
class Database:
    """The tables that are compared, and their rows before any run."""

    tables: Mapping[tuple[str, str], Table]
    before: Mapping[tuple[str, str], Mapping[Any, Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, aliases: Collection[str], ignore: Collection[str]) -> "Database":
        """Return the tables of all models of these databases, with their rows.

        Raises:
            TestKitError: `ignore` has what is neither a model nor a field.
        """
        tables = {table.key: table for alias in aliases for table in _tables(alias, _ignored(ignore))}
        return cls(tables, {key: table.read() for key, table in tables.items()})

    def read(self) -> "Rows":
        """Return the rows as they are now."""
        return Rows(self, {key: table.read() for key, table in self.tables.items()})

    def reset_sequences(self) -> None:
        """Let the next rows get the same primary keys as before a rollback, which leaves sequences as they are."""
        for alias in {alias for alias, _ in self.tables}:
            connection = connections[alias]
            models = [table.model for table in self.tables.values() if table.alias == alias]
            statements = connection.ops.sequence_reset_sql(no_style(), models)
            if statements:
                with connection.cursor() as cursor:
                    for statement in statements:
                        cursor.execute(statement)


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows at one time."""

    database: Database
    rows: Mapping[tuple[str, str], Mapping[Any, Row]]

    def differences_from(self, reference: "Rows") -> Iterator[str]:
        """Yield in which rows this differs, in words."""
        for key, table in self.database.tables.items():
            yield from _changed(table.label, self.known(key), reference.known(key))
            yield from counted(f"row of {table.label}", self.made(key), reference.made(key))

    def known(self, key: tuple[str, str]) -> dict[Any, Row]:
        """Return the rows that can be told apart by their primary key."""
        return {pk: row for pk, row in self.rows[key].items() if not self._is_made(key, pk)}

    def made(self, key: tuple[str, str]) -> Counter[str]:
        """Count the other rows by their values."""
        return Counter(self._text(key, pk) for pk in self.rows[key] if self._is_made(key, pk))

    def _is_made(self, key: tuple[str, str], pk: Any) -> bool:
        return pk not in self.database.before[key] and self.database.tables[key].makes_keys()

    def _text(self, key: tuple[str, str], pk: Any, depth: int = 0) -> str:
        """Return a new row as text, without its primary key, and with the new rows to which it refers."""
        table, row, parts = self.database.tables[key], self.rows[key][pk], []
        for each in table.fields():
            if each.primary_key:
                continue
            value, target = row[each.attname], self._target(table, each)
            if target and value in self.rows[target] and self._is_made(target, value):
                new = self._text(target, value, depth + 1) if depth < MAX_DEPTH else "..."
                parts.append(f"{each.name}=(new: {new})")
            else:
                parts.append(f"{each.attname}={text_of(value)}")
        return ", ".join(parts) or "only a primary key"

    def _target(self, table: Table, each: "Field[Any, Any]") -> tuple[str, str] | None:
        """Return the table to whose primary key a field refers."""
        if each.remote_field is None or not getattr(each, "target_field", each).primary_key:
            return None
        key = table.alias, meta_of(meta_of(each.remote_field.model).concrete_model).label
        return key if key in self.rows else None


def text_of(value: Any) -> str:
    """Return a value as text that does not depend on the order of dicts."""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    return repr(value)


def counted(what: str, found: Counter[str], reference: Counter[str]) -> Iterator[str]:
    """Yield what there is more or less often than in the reference, in words."""
    for text in sorted((found - reference) + (reference - found)):
        more = found[text] - reference[text]
        yield f"{abs(more)} {what} {'too many' if more > 0 else 'too few'}: {text}"


def _changed(label: str, found: Mapping[Any, Row], reference: Mapping[Any, Row]) -> Iterator[str]:
    for pk in [*reference, *(pk for pk in found if pk not in reference)]:
        if pk not in found:
            yield f"the row {pk!r} of {label} is missing"
        elif pk not in reference:
            yield f"the row {pk!r} of {label} is there only now"
        else:
            for name, value in reference[pk].items():
                if found[pk][name] != value:
                    yield f"the row {pk!r} of {label} has {name}={text_of(found[pk][name])}, not {text_of(value)}"


def _tables(alias: str, ignored: Mapping[type[Model], frozenset[str] | None]) -> Iterator[Table]:
    existing = set(connections[alias].introspection.table_names())
    for model in apps.get_models(include_auto_created=True):
        meta, names = meta_of(model), ignored.get(model, frozenset())
        is_here = meta.managed and not meta.proxy and meta.db_table in existing and meta.label not in NO_EFFECTS
        if is_here and names is not None and router.allow_migrate_model(alias, model):
            # These have the time of the run.
            times = {
                each.name
                for each in meta.local_concrete_fields
                if getattr(each, "auto_now", False) or getattr(each, "auto_now_add", False)
            }
            yield Table(alias, model, names | times)


def _ignored(names: Collection[str]) -> dict[type[Model], frozenset[str] | None]:
    """Return the ignored fields of each model; None: all of it."""
    found: dict[type[Model], frozenset[str] | None] = {}
    for name in [names] if isinstance(names, str) else names:
        model_name, dot, field_name = name.rpartition(".") if name.count(".") > 1 else (name, "", "")
        try:
            model = apps.get_model(model_name)
            if not dot:
                found[model] = None
            elif (fields := found.get(model, frozenset())) is not None:
                found[model] = fields | {meta_of(model).get_field(field_name).name}
        except (LookupError, ValueError, FieldDoesNotExist) as error:
            raise TestKitError(
                "ignore= has models such as 'shop.Order' and fields such as 'shop.Order.total', "
                f"not {repr_of(name, 200)}"
            ) from error
    return found


#: The most differences of one kind of repetition that an error names.
MAX_SHOWN = 10

OUTSIDE = (
    "assert_idempotent() runs a message several times, and restores the database after each. That needs the "
    "transaction of a TestCase or of pytest.mark.django_db, and this test is in none."
)
NOT_HANDLED = "The message was not delivered to {where}: it may have expired"

#: What happens to the first of two deliveries -> a function that lets it happen.
Repetition = Callable[[QueueConfig, Databases, Message], object]


def _crash(point: str) -> Repetition:
    def crash(config: QueueConfig, databases: Databases, message: Message) -> None:
        # Among others, because it is charged otherwise, and a crash in the only attempt would bury it.
        FatalRun(config, databases, point, only=message).die(among_others=True)

    return crash


REPETITIONS: dict[str, Repetition] = {
    "run twice": lambda config, databases, message: SingleRun(config, databases, only=message).lose_outcome(),
    "a crash before the handler, then a second run": _crash(BEFORE_HANDLER),
    "a crash before the on-commit hooks, then a second run": _crash(BEFORE_ON_COMMIT),
    "a crash after the effect, then a second run": _crash(AFTER_EFFECT),
}


def assert_idempotent(function: Any, message: Any = None, *, ignore: Collection[str] = ()) -> None:
    """Check that a message has the same effects when it is delivered again: see MQ.assert_idempotent()."""
    __tracebackhide__ = True
    refuse_event_loop(": await sync_to_async(mq.assert_idempotent)(...) in place of mq.assert_idempotent(...)")
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
            if hasattr(mail, "outbox"):
                mail.outbox.clear()
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
