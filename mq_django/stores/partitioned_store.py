"""A queue with partitions, for producers. Consumers have the store of each partition."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from mq_django.conf import DeliveryOptions, QueueConfig
from mq_django.core.keys import READY, UNIQUE_PREFIX
from mq_django.core.message_format import decode_body, decode_entry, message_of
from mq_django.core.messages import CancelResult, Delivery, Lookup, LookupState, Message
from mq_django.core.partitions import partition_of
from mq_django.core.publication import Publication
from mq_django.errors import DecodeError
from mq_django.stores.base import Store
from mq_django.stores.dead_letters import buried
from mq_django.stores.partition_transport import check_reply, record_command
from mq_django.transport.sessions import Transport

# What queues and topics with partitions have in common: each message is published to its partition.


class Publishes(Protocol):
    def publish(self, publications: Sequence[Publication]) -> Sequence[Any]:
        """Publish messages, all or none."""


ConfigT = TypeVar("ConfigT", bound=DeliveryOptions)
StoreT = TypeVar("StoreT", bound=Publishes)


class PartitionedPublisher(Generic[ConfigT, StoreT]):
    """Publishes each message to its partition.

    Args:
        config: the queue or topic.
        stores: of its partitions, by name.
        transport: records the number of partitions at the first use.
    """

    def __init__(self, config: ConfigT, stores: Mapping[str, StoreT], transport: Transport) -> None:
        self.config = config
        self._stores = stores
        self._transport = transport
        self._is_checked = False

    def check(self) -> None:
        """Record the number of partitions at the first call, and check it.

        Raises:
            QueueClosed: there is another number of partitions than the settings say, or it is being changed.
        """
        if not self._is_checked:
            check_reply(self.config, self._transport.pipeline([record_command(self.config)])[0])
            self._is_checked = True

    def publish(self, publications: Sequence[Publication]) -> list[Any]:
        """Publish messages, all or none of a partition, and return what the stores return for each.

        Raises:
            QueueClosed: there is another number of partitions than the settings say, or it is being changed.
        """
        self.check()
        if len(publications) == 1:
            return list(self._stores[publications[0].options.destination.name].publish(publications))
        by_part: dict[str, list[int]] = {}
        for at, each in enumerate(publications):
            by_part.setdefault(each.options.destination.name, []).append(at)
        found: list[Any] = [None] * len(publications)
        for name, numbers in by_part.items():
            ids = self._stores[name].publish([publications[at] for at in numbers])
            for at, message_id in zip(numbers, ids, strict=True):
                found[at] = message_id
        return found


class PartitionedStore(PartitionedPublisher[QueueConfig, Store]):
    """Publishes each message to its partition, and looks for messages in all of them."""

    def cancel(self, id_or_unique: str | bytes) -> CancelResult:
        """See Store.cancel()."""
        return self._first(id_or_unique, lambda store: store.cancel(id_or_unique))

    def cancel_running(self, id_or_unique: str | bytes, *, force: bool = False) -> CancelResult:
        """See Store.cancel_running(). Consumers of all partitions are asked if it is not known which one has it."""
        found = self.cancel(id_or_unique)
        if found is not CancelResult.NOT_WAITING:
            return found
        asked = [store.cancel_running(id_or_unique, force=force) for store in self._stores_of(id_or_unique)]
        return next((result for result in asked if result is not CancelResult.NOT_WAITING), CancelResult.NOT_WAITING)

    def reschedule(self, id_or_unique: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """See Store.reschedule()."""
        return self._first(id_or_unique, lambda store: store.reschedule(id_or_unique, delay_ms=delay_ms, due_ms=due_ms))

    def find(self, id_or_unique: str) -> Lookup:
        """See Store.find()."""
        found = Lookup(LookupState.NOT_WAITING)
        for store in self._stores_of(id_or_unique):
            found = store.find(id_or_unique)
            if found.state is not LookupState.NOT_WAITING:
                break
        return found

    def _first(self, id_or_unique: str | bytes, ask: Callable[[Store], CancelResult]) -> CancelResult:
        for store in self._stores_of(id_or_unique):
            found = ask(store)
            if found is not CancelResult.NOT_WAITING:
                return found
        return CancelResult.NOT_WAITING

    def _stores_of(self, id_or_unique: str | bytes) -> Iterator[Store]:
        """Yield the partitions in which a message may be, the likely one first."""
        text = id_or_unique.decode(errors="replace") if isinstance(id_or_unique, bytes) else id_or_unique
        is_unique = text.startswith(UNIQUE_PREFIX)
        numbers = (
            self.config.partitions_for_name(text.removeprefix(UNIQUE_PREFIX))
            if is_unique
            else self.config.partitions_for_id(text)
        )
        return (self._stores[state.name] for state in numbers)


# What is on its way to another partition, while the number of partitions of a queue changes, and where it goes.

#: Names and values before the fields of a message in an entry of `moving`: see lua/repartition_take.lua.
HEAD = 16

#: The places of what is no message, and of messages that are entries of a stream.
CLAIM, NOTE = "claim", "note"
ENTRIES = frozenset({"ready", "front"})
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
    state, name = head["state"], head["name"]
    if state == NOTE:
        return Moving(entry, flat, new.partition_for(key=None, message_id=name), "")
    if state == CLAIM:
        # Its message is gone. Without a key the unique key has chosen the partition. A key would not be known.
        is_chosen = not old.parts or old.parts[partition_of(name, len(old.parts))].keys == source.keys
        return Moving(entry, flat, new.partition_for(key=None, unique=name) if is_chosen else None, "")
    message = _message(head, flat[HEAD:], source)
    message_id, claim = head["id"], head["claim"] or None
    if message is not None and message.id != _NO_ID.decode():
        message_id = message.id
    # Of a message without an id, its place in the queue is unique.
    known = message_id or f"{source.keys.queue} {name}"
    key, unique = (None, None) if message is None else (message.key, message.unique)
    return Moving(entry, flat, new.partition_for(key=key, unique=unique or claim, message_id=known), message_id)


def _message(head: Mapping[str, str], fields: Sequence[bytes], source: QueueConfig) -> Message | None:
    """Return a message, or None if it cannot be decoded."""
    if head["state"] == DEAD:
        pairs = dict(zip(fields[::2], fields[1::2], strict=True))
        found = buried(source.name, _NO_ID.decode(), pairs)
        return found.message if isinstance(found, Delivery) else None
    if head["state"] in ENTRIES:
        entry = decode_entry(list(fields), queue=source.name, stream=READY, entry=_NO_ID)
        return entry.message if isinstance(entry, Delivery) else None
    try:
        own = head["id"].encode(errors="surrogateescape") or _NO_ID
        return message_of(decode_body(fields[1]), queue=source.name, entry=own)
    except (DecodeError, UnicodeDecodeError):
        return None
