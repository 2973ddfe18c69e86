"""What is on its way to another partition, while the number of partitions of a queue changes, and where it goes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.keys import READY
from mq_django.core.messages import Delivery, Message
from mq_django.core.partitions import partition_of
from mq_django.core.wire import decode_body, decode_entry, message_of
from mq_django.errors import DecodeError
from mq_django.stores.dead_letter_queue import buried

#: Names and values before the fields of a message in an entry of `moving`: see lua/repartition_take.lua.
HEAD = 16

#: The places of what is no message, and of messages that are entries of a stream.
CLAIM, NOTE = "claim", "note"
ENTRIES = frozenset({"ready", "urgent"})
DEAD = "dead"

#: Stands for the entry of a message, to see whether it has an id of its own.
_NO_ID = b"0-0"


class Moving(NamedTuple):
    """A message, a claim or a note on its way to another partition."""

    #: In the stream `moving`.
    entry: bytes
    #: Its names and values, as the script has written them and the next one gets them.
    flat: Sequence[bytes]
    #: None for a claim of a message whose key is not known.
    target: QueueConfig | None
    #: Of the message; "" if it is none, or has none.
    message_id: str

    @property
    def size(self) -> int:
        """The bytes of its values."""
        return sum(map(len, self.flat))


def moving_of(entry: bytes, flat: Sequence[bytes], source: QueueConfig, old: QueueConfig, new: QueueConfig) -> Moving:
    """Return what an entry of `moving` is, and its partition: always the same one.

    Args:
        entry: the entry.
        flat: its names and values.
        source: the partition where it was.
        old: the queue with the number of partitions that it had.
        new: the queue with the number that it gets.
    """
    texts = [value.decode(errors="surrogateescape") for value in flat[:HEAD]]
    head = dict(zip(texts[::2], texts[1::2], strict=True))
    place, name = head["place"], head["name"]
    if place == NOTE:
        return Moving(entry, flat, new.place_of(key=None, message_id=name), "")
    if place == CLAIM:
        # Its message is gone. Without a key the unique key has chosen the partition. A key would not be known.
        is_chosen = not old.parts or old.parts[partition_of(name, len(old.parts))].keys == source.keys
        return Moving(entry, flat, new.place_of(key=None, unique=name) if is_chosen else None, "")
    message = _message(head, flat[HEAD:], source)
    message_id, claim = head["id"], head["claim"] or None
    if message is not None and message.id != _NO_ID.decode():
        message_id = message.id
    # Of a message without an id, its place in the queue is unique.
    known = message_id or f"{source.keys.queue} {name}"
    key, unique = (None, None) if message is None else (message.key, message.unique)
    return Moving(entry, flat, new.place_of(key=key, unique=unique or claim, message_id=known), message_id)


def _message(head: Mapping[str, str], fields: Sequence[bytes], source: QueueConfig) -> Message | None:
    """Return a message, or None if it cannot be decoded."""
    if head["place"] == DEAD:
        pairs = dict(zip(fields[::2], fields[1::2], strict=True))
        found = buried(source.name, _NO_ID.decode(), pairs)
        return found.message if isinstance(found, Delivery) else None
    if head["place"] in ENTRIES:
        entry = decode_entry(list(fields), queue=source.name, stream=READY, entry=_NO_ID)
        return entry.message if isinstance(entry, Delivery) else None
    try:
        own = head["id"].encode(errors="surrogateescape") or _NO_ID
        return message_of(decode_body(fields[1]), queue=source.name, entry=own)
    except (DecodeError, UnicodeDecodeError):
        return None
