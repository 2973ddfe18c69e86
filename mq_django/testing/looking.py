"""Read queues, dead letters, results and topics for tests: whole messages, without the redaction of the admin."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, get_args

from django.utils.module_loading import import_string

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.breakers import Hold
from mq_django.core.filters import Filterable
from mq_django.core.jsontext import whole
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.message_format import entry_ms
from mq_django.core.message_streams import Chunk
from mq_django.core.messages import Delivery, Message
from mq_django.core.offsets import BEGINNING, END
from mq_django.core.texts import repr_of
from mq_django.errors import NotSupported, TestKitError
from mq_django.inspector.message_views import MessageView, ScannedRows
from mq_django.inspector.readers import open_reader
from mq_django.inspector.stream_reader import StreamReader
from mq_django.producers.topics import topics
from mq_django.stores import open_log, open_store
from mq_django.stores.dead_letters import BATCH, buried, next_to, open_dead_letters, text_of
from mq_django.stores.message_streams import START, Page, read_after
from mq_django.stores.results import MAX_RESULT, read_result
from mq_django.testing.published import utc
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

#: Where a message of a queue is, in the order in which messages() lists them.
State = Literal["ready", "pending", "delayed", "unhandled", "parked", "dead"]

#: Maximum messages that a call reads of a queue in a state, and of a topic.
LIMIT = 10_000

#: Values of up to so many bytes are read, which is more than a message has.
WHOLE = 1 << 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A message of a queue, and where it is."""

    #: None: what is there is not a valid message.
    message: Message | None
    state: State
    #: When a delayed message is due, in UTC.
    due: datetime | None = None
    #: How long it is until then, by the clock of Redis.
    delay: timedelta | None = field(default=None, compare=False)
    #: Why it is not a valid message; empty if it is.
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter."""

    queue: str
    #: None: it is not a valid message.
    message: Message | None
    #: The last error, in one line.
    error: str
    #: `attempts`, `error`, `undecodable`, `crashed`, `expired` or `uncertain`.
    reason: str
    attempts: int
    traceback: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContent:
    """The log of a topic, and the groups that read it."""

    #: In order, the oldest first.
    messages: Sequence[Message]
    #: The number of undelivered messages of each group that exists.
    groups: Mapping[str, int]


def messages(queue: str, state: State | None = None) -> list[Queued]:
    """Return the messages of a queue or a group, in the order of delivery.

    Messages of a queue with PARTITIONS that have different keys have no order.

    Args:
        queue: its name.
        state: "ready", "pending", "delayed", "unhandled", "parked" or "dead"; None: all of them, in this order.

    Raises:
        UnknownQueue: the queue is not configured.
        TestKitError: there is no such state, or the queue has more than 10,000 messages in it.
        StoreError: Redis cannot be reached, or refuses a command.
        ConfigurationError, NoServer: there is no usable server for tests.
    """
    if state not in (None, *get_args(State)):
        raise TestKitError(f"state= is one of {', '.join(get_args(State))}, not {repr_of(state)}")
    config, each = get_config().queue(queue), get_args(State) if state is None else (state,)
    return [found for one in each for found in _in_parts(config, one)]


def delayed(queue: str | None = None) -> list[Queued]:
    """Return the delayed messages of a queue, those due first in front; of all queues without a name."""
    return [found for name in _names(queue) for found in messages(name, "delayed")]


def dead(queue: str | None = None) -> list[DeadLetter]:
    """Return the dead letters of a queue, the oldest first; of all queues without a name.

    Raises:
        UnknownQueue: the queue is not configured.
        TestKitError: the queue has more than 10,000 dead letters.
        StoreError: Redis cannot be reached, or refuses a command.
        ConfigurationError, NoServer: there is no usable server for tests.
    """
    return [letter for name in _names(queue) for letter in _dead_letters(name)]


def breakers() -> list[Hold]:
    """Return the breakers of all queues that are open, or let more and more messages through.

    Raises:
        StoreError: Redis cannot be reached, or refuses a command.
        ConfigurationError, NoServer: there is no usable server for tests.
    """
    found = [_stored_holds(part) for name in _names(None) for part in get_config().queue(name).each_part]
    return [hold for holds in found for hold in holds.values() if hold.by_breaker]


def streamed(result_or_id: Any, queue: str | None = None) -> list[Chunk]:
    """Return what the handler of a message or task has streamed so far, in order; after an end also that.

    Args:
        result_or_id: the result of `enqueue()`, or the id of a message.
        queue: the name of its queue, or of a group of a topic; None: any queue.

    Raises:
        TestKitError: it is neither a result nor an id, or more than 10,000 chunks were streamed.
        UnknownQueue: the queue is not configured.
        NotSupported: the queue keeps no streams.
        StoreError: Redis cannot be reached, or refuses a command.
        ConfigurationError, NoServer: there is no usable server for tests.
    """
    message_id = getattr(result_or_id, "id", result_or_id)
    if not isinstance(message_id, str):
        raise TestKitError(f"streamed() takes a result or the id of a message, not {repr_of(result_or_id)}")
    configs = [*(get_config().each_part() if queue is None else get_config().queue(queue).each_part)]
    if queue is not None and configs[0].stream is None:
        raise NotSupported(f"Queue {repr_of(queue)} keeps no streams: set STREAM in its settings")
    found = (_streamed_in(config, message_id) for config in configs if config.stream is not None)
    return next(filter(None, found), [])


def _streamed_in(config: QueueConfig, message_id: str) -> list[Chunk]:
    transport = open_transport("inspect", config.connection)

    def chunks() -> Iterator[Chunk]:
        key, page = config.keys.message_stream(message_id), Page(last=START, is_all=False)
        while not page.is_all:
            page = read_after(transport, [{key: page.last or START}])[key]
            yield from page.chunks

    return list(_up_to_limit(chunks(), f"The stream of message {repr_of(message_id)} has chunks:"))


def _stored_holds(config: QueueConfig) -> Mapping[str, Hold]:
    return open_store(config, open_transport("inspect", config.connection)).current_holds()


def results(task_or_queue: Any = None) -> list[Any]:
    """Return the results of a task, or of all tasks of a queue, or of all, in the order of their enqueueing.

    They are the results of Django's task API, as `get_result()` returns them: with `status`, `return_value`, `errors`.

    Args:
        task_or_queue: a task, its path, or the name of a queue; None: all tasks.

    Raises:
        UnknownQueue: it is neither a task nor a queue.
        StoreError: Redis cannot be reached, or refuses a command.
        ConfigurationError, NoServer: there is no usable server for tests.
    """
    path, config = getattr(task_or_queue, "module_path", None), get_config()
    if path is None and _is_task(str(task_or_queue)):
        path = task_or_queue
    is_queue = path is None and task_or_queue is not None
    configs = config.queue(task_or_queue).each_part if is_queue else config.each_part()
    if hasattr(task_or_queue, "get_backend"):
        backend = task_or_queue.get_backend()
    else:  # imported here, because the package of tasks is optional
        backend = import_string("mq_django.task_backend.MQBackend")("mq_django", {"QUEUES": []})
    ids = [found for each in configs if each.keeps_results for found in _result_ids(each, path)]
    found = [backend.get_result(message_id) for message_id in ids]
    return sorted(found, key=lambda result: (str(result.enqueued_at), result.id))


def topic(name: str) -> TopicContent:
    """Return the messages of a topic's log, and how far its groups are behind. Invalid entries are left out.

    Args:
        name: the name of the topic.

    Raises:
        UnknownTopic: the topic is not configured.
        TestKitError: the log has more than 10,000 messages.
        StoreError: Redis cannot be reached, or refuses a command.
        ConfigurationError, NoServer: there is no usable server for tests.
    """
    config = get_config().topic(name)
    log = open_log(config, open_transport("inspect", config.connection))
    entries = _up_to_limit(log.read(BEGINNING, END, batch=BATCH), f"Topic {repr_of(name)} has messages:")
    return TopicContent(
        messages=[entry.message for entry in entries if isinstance(entry, Delivery)],
        groups={group.name: group.lag for group in log.groups()},
    )


class _Unredacted:
    """A matcher that accepts all messages, and keeps the last one as it is before a reader redacts it."""

    data = ""

    def __init__(self) -> None:
        self._last: Filterable | None = None

    def matches(self, message: Filterable) -> bool:
        self._last = message
        return True

    @property
    def message(self) -> Message | None:
        return self._last if isinstance(self._last, Message) else None


def _in_parts(config: QueueConfig, state: State) -> Sequence[Queued]:
    """Return the messages of a queue in a state, of all its partitions together."""
    if state == "dead":
        letters = _dead_letters(config.name)
        return [
            Queued(message=each.message, state=state, problem=each.error if each.message is None else "")
            for each in letters
        ]
    found = [each for part in config.each_part for each in _in_state(part.name, open_reader(part.name), state)]
    if not config.parts and config.public_name == config.name:
        return found
    public = [
        each if each.message is None else replace(each, message=each.message._replace(queue=config.public_name))
        for each in found
    ]
    return sorted(public, key=lambda each: each.due.timestamp() if each.due is not None else 0.0)


def _in_state(queue: str, reader: StreamReader, state: State) -> Iterator[Queued]:
    seen = _Unredacted()

    def page(after: str) -> ScannedRows:
        return reader.rows(state, seen, after=after, limit=BATCH, max_bytes=WHOLE)

    for view in _up_to_limit(_pages(page), f"Queue {repr_of(queue)} has {state} messages:"):
        due_ms = view.at_ms if state == "delayed" else None
        delay = None if due_ms is None else timedelta(milliseconds=due_ms - reader.now_ms)
        yield Queued(message=seen.message, state=state, due=utc(due_ms), delay=delay, problem=view.problem)


def _pages(read: Callable[[str], ScannedRows]) -> Iterator[MessageView]:
    """Yield the rows of all pages. `read` gets the cursor of the last row before."""
    after, left = "", 0
    while left == 0:
        left = BATCH
        for cursor, row in read(after):
            after, left = cursor, left - 1
            if isinstance(row, MessageView):
                yield row


def _dead_letters(queue: str) -> list[DeadLetter]:
    config = get_config().queue(queue)
    found = [pair for part in config.each_part for pair in _buried(part)]
    return [letter for _, letter in (sorted(found, key=lambda pair: pair[0]) if config.parts else found)]


def _buried(config: QueueConfig) -> Iterator[tuple[int, DeadLetter]]:
    """Yield the dead letters of a queue or partition, each with the time at which it was buried, in ms since 1970."""
    queue = config.public_name
    letters, first = open_dead_letters(config, open_transport("inspect", config.connection)), "-"
    while True:
        total, found = letters.read(limit=BATCH, first=first, max_bytes=WHOLE, which="WHOLE")
        if total > LIMIT:
            raise _too_many(f"Queue {repr_of(queue)} has dead letters:")
        for entry, fields in found:
            complete = {name: value for name, value in fields.items() if isinstance(value, bytes)}
            message = buried(queue, entry, complete)
            yield (
                entry_ms(entry.encode()),
                DeadLetter(
                    queue=queue,
                    message=message.message if isinstance(message, Delivery) else None,
                    error=text_of(fields.get(b"deaderror")),
                    reason=text_of(fields.get(b"deadreason")),
                    attempts=whole(fields.get(b"deadattempts")) or 0,
                    traceback=text_of(fields.get(b"deadtraceback")),
                ),
            )
        if len(found) < BATCH:
            return
        first = next_to(found[-1][0], "-")


def _result_ids(config: QueueConfig, path: str | None) -> Iterator[str]:
    """Yield the ids of the stored results of a queue: of one task, or of all tasks that this process knows."""
    transport, prefix = open_transport("inspect", config.connection), config.keys.result("")
    cursor: bytes = b"0"
    while True:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"
        cursor, keys = transport.ask(("SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
        commands: list[Command] = [("GETRANGE", key, 0, MAX_RESULT - 1) for key in keys]
        for key, text in zip(keys, transport.pipeline(commands) if commands else (), strict=True):
            found = read_result(reply_or_raise(text) or b"{}")
            if found is not None and (found.name == path if path else _is_task(found.name)):
                yield key.decode()[len(prefix) :]
        if int(cursor) == 0:
            return


def _is_task(name: str) -> bool:
    handler = registry.find("", name)  # a task's handler is that of all queues
    return handler is not None and handler.accepts is not None


def _names(queue: str | None) -> list[str]:
    """Return one queue, or all: the queues of the settings, and the groups in code and in Redis."""
    if queue is not None:
        return [queue]
    groups: set[str] = set()
    for name in get_config().topics:
        groups.update(registry.groups(name))
        groups.update(f"{name}{GROUP_SEPARATOR}{status.position.name}" for status in topics[name].groups())
    return [*get_config().queues, *sorted(groups)]


def _up_to_limit(found: Iterator[T], what: str) -> Iterator[T]:
    for count, each in enumerate(found, 1):
        if count > LIMIT:
            raise _too_many(what)
        yield each


def _too_many(what: str) -> TestKitError:
    return TestKitError(f"{what} more than {LIMIT:,}, which is the most that mq_django.testing reads")
