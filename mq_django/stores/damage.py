"""Damage that other programs do to the streams of a queue, or to the log of a topic: find it, and say what was lost."""

from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.keys import LOG
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.texts import line, truncate
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Up to this many messages are counted, and more are named "at least".
COUNTED = 100
#: Milliseconds after which it is said again that another program reads an ordered queue in its own way. Shorter than
#: the half hour for which the queue has the problem, so that the problem does not end in between.
REPEATED_AFTER = 25 * 60_000
#: Characters of a consumer's name that are shown.
LONGEST_NAME = 200


class Damage(NamedTuple):
    """Something that another program did to a stream."""

    #: See stream_check.lua, lines_check.lua and topic_check.lua.
    kind: str
    stream: str
    #: Messages that it affects.
    messages: int = 0
    #: For `MOVED` and `MOVED_BACK`: the last delivered entry before and after.
    moved_from: str = ""
    moved_to: str = ""
    group: str = ""
    #: For `UNORDERED`: who reads the queue, or who holds a message whose token was deleted.
    consumer: str = ""

    def __str__(self) -> str:
        count = f"at least {self.messages}" if self.messages == COUNTED else str(self.messages)
        stream = self.stream
        match self.kind:
            case "DELETED":
                return f"{stream} was deleted, and {self.messages} undelivered messages are lost"
            case "TRIMMED":
                return f"{self.messages} undelivered messages were trimmed from {stream} and are lost"
            case "REMOVED":
                return (
                    f"{self.messages} messages were removed from {stream} while consumers hold them; if it was "
                    "trimmed, undelivered messages are lost, too"
                )
            case "SKIPPED":
                return (
                    f"{count} messages of {stream} are not delivered: its consumer group was moved, or they were acked "
                    f"without XDEL. XGROUP SETID {stream} {self.group} 0 delivers them, and "
                    "repeats the messages that are being handled"
                )
            case "MOVED":
                return (
                    f"its consumer group was moved by XGROUP SETID from {self.moved_from} to {self.moved_to}, and "
                    f"{count} messages are skipped; mq topics seek moves it back"
                )
            case "MOVED_BACK":
                return (
                    f"its consumer group was moved by XGROUP SETID from {self.moved_from} back to {self.moved_to}, and "
                    f"{count} messages are delivered again"
                )
            case "UNORDERED":
                return (
                    f"consumer {self.consumer} holds messages with a key that lines_fetch did not deliver, so messages "
                    "of a key may run at the same time or in another order. Stop the program that reads the queue with "
                    "XREADGROUP; docs/protocol.md says under Lines how it can read it"
                )
            case "LOST":
                return f"{self.messages} messages were removed from {stream} before the group read them"
            case _:
                return (
                    f"the last entry of {stream} has an id far in the future; when ids reach the largest one, nothing "
                    "can be published. Save its entries, and delete the key"
                )


class DamageNote(NamedTuple):
    """The last damage to a queue, for display."""

    kind: str
    messages: int
    #: How long ago it was found, in ms.
    age_ms: int


def read_damage(text: bytes, *, now_ms: int) -> DamageNote | None:
    """Return the note that a check has left in Redis, or None."""
    words = text.split()
    if len(words) != 3:
        return None
    found_ms, messages = whole(words[0], LAST_MS), whole(words[2])
    kind = words[1].decode(errors="replace")
    return None if found_ms is None or messages is None else DamageNote(kind, messages, max(0, now_ms - found_ms))


class DamageCheck:
    """Looks for damage to one queue, or to one group of a topic. Each finding is returned once, to one process."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._wire = wire
        keys = config.keys
        self._group = keys.group
        # A queue in RSMQ's format has no streams, and only a group of a topic reads a log.
        streams, logs = keys.streams()[:LOG], keys.streams()[LOG:]
        own = scripts.command("stream_check", keys=[keys.control, *streams], args=[keys.group])
        ordered = [self._order_command(config)] if config.ordered else []
        of_log = [scripts.command("topic_check", keys=[log, keys.control], args=[keys.group]) for log in logs]
        self._commands: list[Command] = [own, *ordered, *of_log] if streams else []

    def find(self) -> list[Damage]:
        """Return what other programs did since the last check, and remember the position of a group."""
        if not self._commands:
            return []
        replies = [reply_or_raise(reply) for reply in self._wire.trip(self._commands)]
        found: list[Damage] = []
        for kind, stream, count, *more in (row for reply in replies for row in reply):
            damage = Damage(kind.decode(), stream.decode(), count, group=self._group)
            if damage.kind == "UNORDERED":
                damage = damage._replace(consumer=truncate(line(more[0]), LONGEST_NAME))
            elif more:
                damage = damage._replace(moved_from=more[0].decode(), moved_to=more[1].decode())
            found.append(damage)
        return found

    def _order_command(self, config: QueueConfig) -> Command:
        keys = config.keys
        key_names = [keys.control, keys.permits, keys.ready, keys.urgent]
        return scripts.command("lines_check", keys=key_names, args=[self._group, REPEATED_AFTER])
