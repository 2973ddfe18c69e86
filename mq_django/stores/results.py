"""The results of tasks: one STRING with a TTL per task, with a JSON line for the task and one for each attempt.

`mq_django.core.retries` reads the lines of attempts. Those of a result also have the id of the stream entry.

Lines are appended without reading the key, so storing a result costs no round trip. The script leaves out deliveries
that the consumer no longer holds, as for the history: their holder says how they end. Attempts are ordered by the
ids of their stream entries, which only increase, and not by the order of the lines.

A task that has been running for a second has a line with the status RUNNING. It counts until there is an ending of the
same delivery, or a line of a later one, and while its consumer is a member of the queue.
"""

import builtins
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.jsontext import LAST_MS, dumps, object_in
from mq_django.core.logs import get_logger
from mq_django.core.messages import ACK, Ack, Bury, Cancel, Delivery, Expire, Message, Retry, StepDrop, StepEnd
from mq_django.core.partitions import likely_first
from mq_django.core.publication import Publication
from mq_django.core.retries import FAILED, READY, RUNNING, SUCCESSFUL, Attempt, failure, read_attempt
from mq_django.core.running_handler import Progress, Report, progress_text, read_progress
from mq_django.errors import Cancelled, StoreError
from mq_django.stores.base import Settlement
from mq_django.stores.members import is_consumer
from mq_django.transport import scripts
from mq_django.transport.connections import open_transports
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# Note in the results of tasks that they are running.

#: The beginning of the line of an attempt that has not ended.
RUNS = b'{"status":"RUNNING"'
#: Results that a script call writes.
BATCH = 500


class RunningTask(NamedTuple):
    """A delivery of a task that is running."""

    delivery: Delivery
    #: Milliseconds since 1970.
    started_ms: int


def note_running(transport: Transport, config: QueueConfig, consumer: str, tasks: Sequence[RunningTask]) -> None:
    """Store in the results of tasks of a queue that they are running in a consumer.

    Results that do not exist are not created, and none of them is kept longer or shorter for it.

    Raises:
        StoreError: Redis cannot be reached, or refuses a command.
    """
    who = dumps(consumer)
    for at in range(0, len(tasks), BATCH):
        batch = tasks[at : at + BATCH]
        lines: list[Argument] = [
            b'\n%b,"attempt":%d,"entry":"%b","consumer":%b,"started":%d,"finished":null}'
            % (RUNS, each.delivery.message.attempt, each.delivery.entry, who, each.started_ms)
            for each in batch
        ]
        keys = [config.keys.result(each.delivery.message.id) for each in batch]
        transport.run("results_running", keys, lines)


logger = get_logger(__name__)

#: The shortest TTL of the result of an unfinished task, because a backlog may last for days.
UNFINISHED_TTL_MS = 7 * 24 * 3600 * 1000
#: Results that a script call writes. This blocks Redis for about 1 ms.
#: The number of first attempts whose traceback is stored. That of a burial is always stored.
TRACEBACKS = 5
#: The most bytes of a result that are read.
MAX_RESULT = 4 * 1024 * 1024

#: The error in the result of a cancelled task, and of an expired message.
CANCELLED = f"{Cancelled.__module__}.{Cancelled.__qualname__}"
EXPIRED = "mq_django.errors.MessageExpired: expired before it was handled"
#: The part of an attempt's line about a message that was cancelled before it started.
NOT_RUN = b'","consumer":"","started":'
#: The largest id of a stream entry.
LAST_ENTRY = "18446744073709551615-18446744073709551615"

_ENTRY = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?=: |:?$)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The stored result of a task."""

    queue: str
    #: The task's path, which is the message's name.
    name: str
    #: The message's data.
    data: Any
    #: Milliseconds since 1970.
    enqueued_ms: int | None
    due_ms: int | None
    priority: int
    #: Those that have ended, in the order of their deliveries.
    attempts: Sequence[Attempt]
    #: The attempt after them, if it has been running for a second or more.
    running: Attempt | None = None

    @property
    def runs(self) -> Sequence[Attempt]:
        """Return the attempts without a cancellation, at which the task did not run; last the one that runs."""
        runs = [attempt for attempt in self.attempts if attempt.consumer or attempt.error != CANCELLED]
        return runs if self.running is None else [*runs, self.running]

    @property
    def status(self) -> str:
        """Return RUNNING, or the status of the last attempt that has ended; READY before the first has."""
        if self.running is not None:
            return RUNNING
        return self.attempts[-1].status if self.attempts else READY

    @property
    def has_ended(self) -> bool:
        """Return whether the task is neither running nor tried again."""
        return self.status in (FAILED, SUCCESSFUL)


def ready_command(config: QueueConfig, publication: Publication) -> Command:
    """Return the command that creates a task's result, for the round trip that publishes its message."""
    message, data_text, options = publication
    ttl_ms, due_ms = _unfinished_ms(config), options.due_ms
    if options.delay_ms is not None or due_ms is not None:
        now_ms = clock.now_ms()
        due_ms = now_ms + math.ceil(options.delay_ms or 0) if due_ms is None else due_ms
        ttl_ms += max(0, due_ms - now_ms)
    return ("SET", config.keys.result(message.id), _task_line(message, data_text, due_ms), "PX", ttl_ms)


def end_cancelled(
    transport: Transport,
    config: QueueConfig,
    message_ids: Sequence[str],
    how: str = "Cancelled while it waited",
) -> None:
    """Store in the results of cancelled messages, if they ran tasks, that these have failed.

    An error of Redis is logged, because the messages are cancelled in any case.
    """
    if not config.keeps_results or not message_ids:
        return
    line = {
        "status": FAILED,
        # After the attempts that have failed, and before none: it is not delivered again.
        "entry": LAST_ENTRY,
        "consumer": "",
        "started": None,
        "finished": clock.now_ms(),
        **failure(CANCELLED, how),
    }
    args: list[Argument] = [b"\n" + dumps(line), _ttl_ms(config), config.keys.results_channel("")]
    keys = [config.keys.result(each) for each in message_ids]
    try:
        for at in range(0, len(keys), BATCH):
            transport.run("results_cancel", [*keys[at : at + BATCH], config.keys.waiters], args)
    except StoreError as error:
        logger.warning("The results of cancelled tasks of queue %s stay READY: %s", config.name, error)


def find_result(transports: Sequence[Transport], configs: Sequence[QueueConfig], message_id: str) -> Result | None:
    """Look up a task's result in several queues, in one round trip per server. Each has its transport.

    Of the partitions of a queue the first is asked, and the others only if nothing was found. If the task seems to be
    running, another round trip asks whether its consumer is still a member of the queue.

    Raises:
        StoreError: Redis cannot be reached, or no queue has the result and one of them cannot be read.
    """
    for chosen in likely_first([each.public_name for each in configs]):
        found = _find_in([transports[at] for at in chosen], [configs[at] for at in chosen], message_id)
        if found is not None:
            return found
    return None


def _find_in(transports: Sequence[Transport], configs: Sequence[QueueConfig], message_id: str) -> Result | None:
    keys = [config.keys.result(message_id) for config in configs]
    replies = [reply for (reply,) in fan_out(transports, [[("GETRANGE", key, 0, MAX_RESULT - 1)] for key in keys])]
    # Errors last, so that a queue that cannot be read does not hide the result in another one.
    for at in sorted(range(len(configs)), key=lambda at: isinstance(replies[at], Exception)):
        if text := reply_or_raise(replies[at]):
            found = read_result(text)
            if found and found.running and not is_consumer(transports[at], configs[at], found.running.consumer):
                return replace(found, running=None)
            return found
    return None


def copy_results(
    source: tuple[QueueConfig, Transport], target: tuple[QueueConfig, Transport], ids: Sequence[str]
) -> list[str]:
    """Copy the results of tasks to another queue, unless that has them. Returns the keys of those that there are.

    A result that cannot be read is left where it is.
    """
    keys = [source[0].keys.result(each) for each in ids]
    found = source[1].pipeline([("GETRANGE", key, 0, MAX_RESULT - 1) for key in keys])
    there, commands = list[str](), list[Command]()
    for key, message_id, text in zip(keys, ids, found, strict=True):
        head, *lines = text.split(b"\n") if isinstance(text, bytes) else [b""]
        if fields := object_in(head):
            # What is moved does not run. A consumer of both queues would make it seem so.
            ended = [line for line in lines if not line.startswith(RUNS)]
            value = b"\n".join([dumps({**fields, "queue": target[0].public_name}), *ended])
            commands.append(("SET", target[0].keys.result(message_id), value, "PX", _unfinished_ms(target[0]), "NX"))
            there.append(key)
    target[1].ask_all(commands)
    return there


def read_result(text: bytes) -> Result | None:
    """Return the result in the value of a key, or None if another program has written it."""
    head, *lines = map(object_in, text.split(b"\n"))
    if not isinstance(head.get("name"), str) or not isinstance(head.get("queue"), str):
        return None
    found = [(_entry_order(line.get("entry")), attempt) for line in lines if (attempt := read_attempt(line))]
    # At the same delivery an ending counts, whichever was written first.
    found.sort(key=lambda each: (each[0], each[1].number, each[1].status != RUNNING))
    attempts = [attempt for _, attempt in found]
    return Result(
        queue=head["queue"],
        name=head["name"],
        data=head.get("data"),
        enqueued_ms=_whole(head.get("enqueued"), LAST_MS),
        due_ms=_whole(head.get("due"), LAST_MS),
        priority=_whole(head.get("priority"), 100) or 0,
        attempts=[attempt for attempt in attempts if attempt.status != RUNNING],
        running=attempts[-1] if attempts and attempts[-1].status == RUNNING else None,
    )


def _whole(value: object, largest: int) -> int | None:
    """Return an integer from -`largest` to `largest`, or None: any program may have written the value."""
    return value if isinstance(value, int) and -largest <= value <= largest else None


def _entry_order(entry: object) -> tuple[int, int]:
    """Return the two numbers of a stream entry's id, by which attempts are ordered; (0, 0) if it is not valid."""
    found = _ENTRY.fullmatch(str(entry)[:44])
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _unfinished_ms(config: QueueConfig) -> int:
    return max(_ttl_ms(config), UNFINISHED_TTL_MS)


def _ttl_ms(config: QueueConfig) -> int:
    return round(config.result_ttl.total_seconds() * 1000)


@lru_cache(maxsize=1000)
def _task_head(queue: str, name: str) -> bytes:
    """Return the beginning of a task's line. Cached, because a project has few tasks."""
    return b'{"queue":%b,"name":%b,"enqueued":' % (dumps(queue), dumps(name))


def _task_line(message: Message, data_text: bytes, due_ms: int | None = None) -> bytes:
    # Another program may have published JSON with line breaks, which are allowed only between values.
    data_text = data_text.replace(b"\n", b" ")
    enqueued_ms = message.published_ms
    return b'%b%b,"due":%b,"priority":%d,"data":%b}' % (
        _task_head(message.queue, message.name),
        b"null" if enqueued_ms is None else b"%d" % enqueued_ms,
        b"null" if due_ms is None else b"%d" % due_ms,
        message.priority,
        data_text,
    )


_STATUS: Mapping[type, bytes] = {
    Ack: SUCCESSFUL.encode(),
    StepEnd: SUCCESSFUL.encode(),
    StepDrop: FAILED.encode(),
    Retry: READY.encode(),
    Bury: FAILED.encode(),
    Expire: FAILED.encode(),
    Cancel: FAILED.encode(),
}


def results_of_batch(
    config: QueueConfig, consumer: str, settlements: Sequence[Settlement]
) -> tuple[list[str], list[Argument]]:
    """Return the keys of the results of tasks that are settled, and what is appended to them: see `lua/settle.lua`."""
    finished_ms = clock.now_ms()
    ended_ttl, unfinished_ttl = _ttl_ms(config), _unfinished_ms(config)
    # The parts that all lines share.
    prefix, who = config.keys.result(""), b'","consumer":%b,"started":' % dumps(consumer)
    finished = b',"finished":%d' % finished_ms
    handled = b'\n{"status":"%b","attempt":%%d,"entry":"%%b%b%%d%b}' % (
        _STATUS[Ack],
        who.replace(b"%", b"%%"),
        finished,
    )
    keys, args = list[str](), list[Argument]()
    for number, settlement in enumerate(settlements, 1):
        delivery, outcome, delay_ms, micros, keeps_result = settlement[:5]
        if not keeps_result or type(outcome) not in _STATUS:
            continue
        assert isinstance(delivery, Delivery)
        message = delivery.message
        keys.append(prefix + message.id)
        if outcome is ACK and micros is not None:
            attempt = handled % (message.attempt, delivery.entry, finished_ms - micros // 1000)
        else:
            attempt = b'\n{"status":"%b","attempt":%d,"entry":"%b%b%b%b%b}' % (
                _STATUS[type(outcome)],
                message.attempt,
                delivery.entry,
                # Without a consumer it is no run of the task.
                NOT_RUN if micros is None and isinstance(outcome, Cancel | StepDrop) else who,
                b"null" if micros is None else b"%d" % (finished_ms - micros // 1000),
                finished,
                _result_fields(outcome, message.attempt),
            )
        ttl = unfinished_ttl + delay_ms if isinstance(outcome, Retry) else ended_ttl
        args += (number, _task_line(message, delivery.data_text), attempt, ttl)
    return keys, args


def _result_fields(outcome: object, number: int) -> bytes:
    """Return the last fields of an attempt's line: the task's return value, or its error and traceback."""
    if isinstance(outcome, Cancel | StepDrop):
        return b"," + dumps(failure(CANCELLED, outcome.error))[1:-1]
    if isinstance(outcome, Ack):
        return b"" if outcome.result is None else b',"value":' + outcome.result
    if isinstance(outcome, Expire):
        return b"," + dumps(failure(error_path(EXPIRED), EXPIRED))[1:-1]
    if isinstance(outcome, Retry | Bury) and (outcome.error or outcome.traceback):
        shows = isinstance(outcome, Bury) or number <= TRACEBACKS
        trace = (outcome.traceback or outcome.error) if shows else outcome.error
        return b"," + dumps(failure(error_path(outcome.error), trace))[1:-1]
    return b""


def error_path(error: str) -> str:
    """Return the path of the exception's class in an outcome's error, such as "shop.errors.GatewayDown: no answer".

    A handler may also return an outcome with any text as its error. That counts as `Exception`.
    """
    found = _EXCEPTION.match(error)
    if found is not None and "." in found[0]:
        return found[0]
    kind = getattr(builtins, found[0], None) if found else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return f"builtins.{kind.__name__}"
    return "builtins.Exception"


# Look at the results that a process waits for, and register it for those that have not ended.

#: Milliseconds for which a registration is valid. A process that waits for longer registers again at each look.
REGISTERED_MS = 30_000
#: Results that a script call looks at.


class SeenResult(NamedTuple):
    """What there is of a result."""

    #: Its key exists.
    exists: bool
    #: How long it was while it had not ended.
    length: int = 0
    #: It has ended.
    ended: Result | None = None


def read_ended(value: bytes) -> Result | None:
    """Return the result in the value of a key, or None if it has not ended."""
    found = read_result(value)
    return found if found is not None and found.has_ended else None


def part_with(transports: Sequence[Transport], parts: Sequence[QueueConfig], message_id: str) -> QueueConfig:
    """Return the one of these partitions that has a result; the first one if none has it.

    Args:
        transports: the transport of each.
        parts: the likely one first.
        message_id: of the result.

    Raises:
        StoreError: Redis cannot be reached, or refuses a command.
    """
    if len(parts) == 1:
        return parts[0]
    pipelines: list[list[Command]] = [[("EXISTS", part.keys.result(message_id))] for part in parts]
    replies = fan_out(transports, pipelines)
    return next((part for part, (reply,) in zip(parts, replies, strict=True) if reply_or_raise(reply)), parts[0])


def watch(transport: Transport, config: QueueConfig, known: Mapping[str, int], process: str) -> dict[str, SeenResult]:
    """Look at results, and register a process for those that have not ended.

    Args:
        transport, config: of their queue.
        known: key -> the length that the result had at the last look; 0 at the first.
        process: the end of its channel.

    Raises:
        StoreError: Redis cannot be reached, or refuses a command.
    """
    found: dict[str, SeenResult] = {}
    left = dict(known)
    while left:
        keys = list(left)[:BATCH]
        args: list[Argument] = [process, REGISTERED_MS, *(left[key] for key in keys)]
        replies = transport.run("results_watch", [*keys, config.keys.waiters], args)
        for key, reply in zip(keys, replies, strict=False):
            length = left.pop(key)
            found[key] = seen = _read(transport, key, reply)
            if seen.exists and seen.ended is None and not isinstance(reply, int) and seen.length != length:
                # It has an ending, after which it was delivered again. It is not registered yet.
                left[key] = seen.length
    return found


def _read(transport: Transport, key: str, reply: bytes | int | None) -> SeenResult:
    if reply is None:
        return SeenResult(exists=False)
    if isinstance(reply, int):
        return SeenResult(exists=True, length=reply)
    return read_notification(transport, key, reply)


def read_notification(transport: Transport, key: str, value: bytes) -> SeenResult:
    """Return what there is of a result whose value was sent, or "" in its place if it is too long.

    Raises:
        StoreError: it was too long, and Redis cannot be reached.
    """
    if value:
        return SeenResult(exists=True, length=len(value), ended=read_ended(value))
    text = transport.ask(("GETRANGE", key, 0, MAX_RESULT - 1))
    return SeenResult(exists=bool(text), length=len(text), ended=read_ended(text))


# What running handlers report: one HASH with a TTL per message, which only messages have whose handlers report.
#
# A key belongs to the run of the handler that has written it last. A consumer that no longer holds its delivery does
# not
# overwrite what the next run reports.

#: How long a report is kept after the last change, and after the message was handled.
KEPT_MS = 7 * 24 * 3600 * 1000
ENDED_MS = 3600 * 1000
#: Reports that a script call writes or reads. This blocks Redis for about 1 ms.
REPORTS_AT_ONCE = 200

#: The most characters of a position.
MAX_POSITION = 500


def begin(transport: Transport, config: QueueConfig, report: Report) -> Mapping[str, str]:
    """Make a message's key that of a run, and return the positions that earlier runs of the same message have saved.

    Raises:
        StoreError: Redis cannot be reached, or the key has another type.
    """
    key = config.keys.progress(report.delivery.message.id)
    text = transport.run("reports_begin", [key], [report.run, KEPT_MS, _digest(report)])
    report.claimed = True
    return _positions(text)


def save(transport: Transport, config: QueueConfig, reports: Sequence[Report]) -> None:
    """Save what has changed in the reports of a queue, in one round trip for up to 200 of them.

    Raises:
        StoreError: Redis cannot be reached, or refuses the command. What is not saved stays marked as changed.
    """
    for at in range(0, len(reports), REPORTS_AT_ONCE):
        batch = reports[at : at + REPORTS_AT_ONCE]
        for report in batch:
            # Before it is read: a change from now on is saved by the next call.
            report.changed = False
        try:
            saved = transport.ask(_command(config, batch))
        except BaseException:
            for report in batch:
                report.changed = True
            raise
        for report, reply in zip(batch, saved, strict=True):
            report.claimed = True
            report.lost = reply == 0


def ended_command(config: QueueConfig, report: Report, is_handled: bool, is_undone: bool) -> Command:
    """Return the command that saves the last report of a run, for the round trip that settles its delivery.

    The positions are kept for the next run, unless the message is handled or the run's changes were rolled back.
    """
    return _command(config, [report], ttl_ms=ENDED_MS if is_handled else KEPT_MS, forget=is_handled or is_undone)


def read_progress_of(
    asked: Sequence[tuple[QueueConfig, str]], transports: Sequence[Transport]
) -> list[Progress | None]:
    """Return the progress of messages, in one round trip per server.

    Args:
        asked: the queue and the id of each message.
        transports: the transport of each queue.

    Raises:
        StoreError: a server cannot be reached, or refuses the command.
    """
    # Script calls for each queue: on a Redis Cluster the keys of two queues may be on different nodes.
    by_queue: dict[str, tuple[QueueConfig, Transport, list[int]]] = {}
    for number, ((config, _), transport) in enumerate(zip(asked, transports, strict=True)):
        by_queue.setdefault(config.name, (config, transport, []))[2].append(number)
    pipelines = [
        _read_commands([config.keys.progress(asked[number][1]) for number in numbers])
        for config, _, numbers in by_queue.values()
    ]
    found: list[Progress | None] = [None] * len(asked)
    replies = fan_out([transport for _, transport, _ in by_queue.values()], pipelines)
    for (_, _, numbers), parts in zip(by_queue.values(), replies, strict=True):
        texts = [text for part in parts for text in reply_or_raise(part)]
        for number, text in zip(numbers, texts, strict=True):
            found[number] = read_progress(text)
    return found


def _read_commands(keys: Sequence[str]) -> list[Command]:
    return [
        scripts.command("reports_read", keys=keys[at : at + REPORTS_AT_ONCE], args=[])
        for at in range(0, len(keys), REPORTS_AT_ONCE)
    ]


def read_progress_in(configs: Sequence[QueueConfig], message_id: str) -> Progress | None:
    """Return the progress of a message that is in one of these queues; None if none is known.

    Raises:
        StoreError: a server cannot be reached, or refuses the command.
    """
    for positions in likely_first([each.public_name for each in configs]):
        chosen = [configs[at] for at in positions]
        transports = open_transports("produce", [config.connection for config in chosen])
        found = read_progress_of([(config, message_id) for config in chosen], transports)
        if (first := next((progress for progress in found if progress is not None), None)) is not None:
            return first
    return None


def _command(config: QueueConfig, reports: Sequence[Report], *, ttl_ms: int = KEPT_MS, forget: bool = False) -> Command:
    keys: list[str] = []
    args: list[Argument] = []
    for report in reports:
        keys.append(config.keys.progress(report.delivery.message.id))
        progress = report.progress
        with report.lock:
            positions = dumps(report.positions) if report.positions else b""
        args += (
            report.run,
            0 if report.claimed else 1,
            ttl_ms,
            progress_text(progress) if progress else b"",
            b"-" if forget else positions,
        )
    return scripts.command("reports_save", keys=keys, args=args)


def _digest(report: Report) -> str:
    """Return a digest of what distinguishes messages with the same id: when they were published, and their data."""
    message = report.delivery.message
    # A message keeps its time when it comes again, also as a redriven dead letter. The data are taken as they are, and
    # not as they were written.
    return blake2b(dumps([message.published_ms, message.data]), digest_size=16).hexdigest()


def _positions(text: object) -> dict[str, str]:
    """Return the positions in stored text. What is not valid is left out: any program may have written it."""
    found = object_in(text).items()
    return {name: value for name, value in found if isinstance(value, str) and len(value) <= MAX_POSITION}
