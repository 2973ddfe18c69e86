"""What running handlers report: one HASH with a TTL per message, which only messages have whose handlers report.

A key belongs to the run of the handler that has written it last. A consumer that no longer holds its delivery does not
overwrite what the next run reports.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import dumps, loads
from mq_django.core.queue_configs import likely_first
from mq_django.core.running_handler import Progress, Report, progress_text, read_progress
from mq_django.errors import DecodeError
from mq_django.transport import scripts
from mq_django.transport.connections import open_wires
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, fan_out, reply_or_raise

#: How long a report is kept after the last change, and after the message was handled.
KEPT_MS = 7 * 24 * 3600 * 1000
ENDED_MS = 3600 * 1000
#: Reports that one script call writes or reads. This blocks Redis for about 1 ms.
BATCH = 200

#: The most characters of a position.
MAX_POSITION = 500


def begin(wire: Wire, config: QueueConfig, report: Report) -> Mapping[str, str]:
    """Make a message's key that of a run, and return the positions that earlier runs with the same data have saved.

    Raises:
        StoreError: Redis cannot be reached, or the key has another type.
    """
    key = config.keys.progress(report.delivery.message.id)
    command = scripts.command("reports_begin", keys=[key], args=[report.run, KEPT_MS, _digest(report)])
    text = reply_or_raise(wire.trip([command])[0])
    report.claimed = True
    return _positions(text)


def save(wire: Wire, config: QueueConfig, reports: Sequence[Report]) -> None:
    """Save what has changed in the reports of a queue, in one round trip for up to 200 of them.

    Raises:
        StoreError: Redis cannot be reached, or refuses the command. What is not saved stays marked as changed.
    """
    for at in range(0, len(reports), BATCH):
        batch = reports[at : at + BATCH]
        for report in batch:
            # Before it is read: a change from now on is saved by the next call.
            report.changed = False
        try:
            saved = reply_or_raise(wire.trip([_command(config, batch)])[0])
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


def read_progress_of(asked: Sequence[tuple[QueueConfig, str]], wires: Sequence[Wire]) -> list[Progress | None]:
    """Return the progress of messages, in one round trip per server.

    Args:
        asked: the queue and the id of each message.
        wires: the wire of each queue.

    Raises:
        StoreError: a server cannot be reached, or refuses the command.
    """
    # Script calls for each queue: on a Redis Cluster the keys of two queues may be on different nodes.
    by_queue: dict[str, tuple[QueueConfig, Wire, list[int]]] = {}
    for number, ((config, _), wire) in enumerate(zip(asked, wires, strict=True)):
        by_queue.setdefault(config.name, (config, wire, []))[2].append(number)
    trips = [
        _read_commands([config.keys.progress(asked[number][1]) for number in numbers])
        for config, _, numbers in by_queue.values()
    ]
    found: list[Progress | None] = [None] * len(asked)
    replies = fan_out([wire for _, wire, _ in by_queue.values()], trips)
    for (_, _, numbers), parts in zip(by_queue.values(), replies, strict=True):
        texts = [text for part in parts for text in reply_or_raise(part)]
        for number, text in zip(numbers, texts, strict=True):
            found[number] = read_progress(text)
    return found


def _read_commands(keys: Sequence[str]) -> list[Command]:
    return [scripts.command("reports_read", keys=keys[at : at + BATCH], args=[]) for at in range(0, len(keys), BATCH)]


def read_progress_in(configs: Sequence[QueueConfig], message_id: str) -> Progress | None:
    """Return the progress of a message that is in one of these queues; None if none is known.

    Raises:
        StoreError: a server cannot be reached, or refuses the command.
    """
    for positions in likely_first(configs):
        chosen = [configs[at] for at in positions]
        wires = open_wires("produce", [config.connection for config in chosen])
        found = read_progress_of([(config, message_id) for config in chosen], wires)
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
    """Return a digest of a message's data, as they are and not as they were written."""
    return blake2b(dumps(report.delivery.message.data), digest_size=16).hexdigest()


def _positions(text: object) -> dict[str, str]:
    """Return the positions in stored text. What is not valid is left out: any program may have written it."""
    try:
        found = loads(text) if isinstance(text, bytes) else None
    except DecodeError:
        found = None
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str) and len(value) <= MAX_POSITION}
