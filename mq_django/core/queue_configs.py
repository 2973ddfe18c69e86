"""The options of queues and their partitions as frozen values. `mq_django.conf` reads them from the settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar

from mq_django.core import ids
from mq_django.core.delivery_options import DeliveryOptions
from mq_django.core.keys import QueueKeys
from mq_django.core.limits import Limit, Limits, Rate, Weights
from mq_django.core.options import (
    option,
    read_after_bury,
    read_concurrency,
    read_count,
    read_fair,
    read_optional_count,
    read_optional_period,
    read_partitions,
    read_rate_limit,
    read_result_ttl,
    read_store,
    read_switch,
)
from mq_django.core.partitions import SEPARATOR, in_turn, number_in_id, partition_name, partition_of, tag_of

STORE = option(
    read_store,
    'The format of the queue in Redis: `"rsmq"` for [queues shared with other programs](#queues-in-rsmqs-format).',
)

#: Cached, because configs may be made again, and making the keys takes 5 µs.
queue_keys = cache(QueueKeys)


def own_keys() -> Any:
    """Return the field for the Redis keys of a queue or a topic, which __post_init__ fills."""
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig(DeliveryOptions):
    """The options of one queue."""

    max_depth: int | None = field(
        default=None,
        metadata=option(
            read_optional_count,
            "The number of ready, waiting and pending messages from which a publish raises `QueueFull`, and ticks "
            "of schedules wait.",
        ),
    )
    result_ttl: timedelta = field(
        default=timedelta(days=1),
        metadata=option(read_result_ttl, "How long a task's result is kept; 0: no results are kept."),
    )
    keep_handled: timedelta | None = field(
        default=None,
        metadata=option(
            read_optional_period,
            "How long it is kept [what became of a message](howto/find-a-message.md) that was handled, expired or "
            "buried; `None`: not at all.",
        ),
    )
    keep_handled_count: int = field(
        default=100_000,
        metadata=option(read_count, "With `KEEP_HANDLED`: of how many messages that is kept, the latest ones."),
    )
    keep_handled_data: bool = field(
        default=False,
        metadata=option(
            read_switch,
            "With `KEEP_HANDLED`: keep also the data of the messages, up to 4 KiB of JSON each, with secrets replaced.",
        ),
    )
    rate_limit: Limit[Rate] = field(
        default=Limit(),
        metadata=option(
            read_rate_limit,
            '`"10/s"`, `"100/m"`, `"5/10s"`: deliveries in any period of this length, of all consumers together. '
            '`{"queue": "100/s", "key": "10/s"}` limits each key, too.',
        ),
    )
    concurrency: Limit[int] = field(
        default=Limit(),
        metadata=option(
            read_concurrency,
            'Deliveries at once, of all consumers together: `5`, or `{"queue": 20, "key": 1}`.',
        ),
    )
    ordered: bool = field(
        default=False,
        metadata=option(
            read_switch,
            "The messages of a key are handled [in their order, one at a time](ordering.md).",
        ),
    )
    after_bury: str = field(
        default="continue",
        metadata=option(
            read_after_bury,
            'With `ORDERED`, when a message becomes a dead letter: with `"continue"` the next message of its key is '
            'handled; with `"hold"` the key waits until the dead letter is redriven, edited or deleted.',
        ),
    )
    fair: Weights | None = field(
        default=None,
        metadata=option(
            read_fair,
            "`True`: while messages wait, [keys take turns](ordering.md#fairness-between-keys), so that none waits for "
            'the many messages of another. `{"big-customer": 5}` gives a key five turns for each one of others.',
            shown="`False`",
        ),
    )
    consume: bool = field(
        default=True,
        metadata=option(
            read_switch,
            "`False`: [other programs handle this queue](#queues-that-other-programs-handle). `runconsumer` does only "
            "its housekeeping.",
        ),
    )
    partitions: int = field(
        default=1,
        metadata=option(
            read_partitions,
            "The number of [partitions](partitions.md): complete queues behind this name, which a Redis Cluster "
            "spreads over its nodes. It is recorded in Redis, and `manage.py mq repartition` changes it.",
        ),
    )
    store: str = field(default="stream", metadata=STORE)
    keys: QueueKeys = own_keys()
    #: Its partitions; none if there is only one, or this is one.
    parts: "tuple[PartitionConfig, ...]" = own_keys()

    #: Schedules may publish to such a queue. Why its running messages cannot be cancelled; "": they can.
    has_schedules: ClassVar[bool] = True
    keeps_running: ClassVar[str] = ""

    @property
    def keeps_results(self) -> bool:
        """See DeliveryOptions.keeps_results."""
        return bool(self.result_ttl)

    @property
    def limits(self) -> Limits:
        """Return all limits as one value."""
        rate, at_once = self.rate_limit, self.concurrency
        return Limits(
            rate=rate.queue,
            key_rate=rate.key,
            concurrency=at_once.queue,
            key_concurrency=1 if self.ordered else at_once.key,
            ordered=self.ordered,
            fair=self.fair,
        )

    def lacking(self, option: str) -> str | None:
        """See DeliveryOptions.lacking()."""
        if option == "priority" and (self.ordered or self.fair is not None):
            return "Queue {config.name!r} has ORDERED or FAIR, which priorities would break"
        return DeliveryOptions.lacking(self, option)

    @property
    def each_part(self) -> "Sequence[QueueConfig]":
        """Return the partitions, or this queue itself if it has none: what has messages and consumers."""
        return self.parts or (self,)

    def place_of(self, *, key: str | None, unique: str | None = None, message_id: str | None = None) -> "QueueConfig":
        """See DeliveryOptions.place_of(): by the key, else by the unique key, else by a given id, else in turn."""
        if not self.parts:
            return self
        named = key or unique
        if named is None and message_id is not None:
            # A generated id may be given again. It is looked for where it says.
            return self.places_of(message_id)[0]
        return self.parts[in_turn(len(self.parts)) if named is None else partition_of(named, len(self.parts))]

    def places_of(self, message_id: str) -> "Sequence[QueueConfig]":
        """Return the partitions in which a message may be, the likely one first: that which its id names.

        It may be in another one since the number of partitions was changed.
        """
        likely, number = self.places_by(message_id), number_in_id(message_id)
        if number is None or number >= len(self.parts):
            return likely
        named = self.parts[number]
        return named, *(part for part in likely if part is not named)

    def places_by(self, name: str) -> "Sequence[QueueConfig]":
        """Return the partitions in which the message with a unique key or a given id may be, the likely one first."""
        if not self.parts:
            return (self,)
        likely = partition_of(name, len(self.parts))
        return self.parts[likely], *self.parts[:likely], *self.parts[likely + 1 :]

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self._make_keys())
        object.__setattr__(self, "parts", self._make_parts())

    def _make_keys(self) -> QueueKeys:
        return queue_keys(self.namespace, self.name)

    def _make_parts(self) -> "tuple[PartitionConfig, ...]":
        if self.partitions == 1:
            return ()
        shared = {option.name: getattr(self, option.name) for option in fields(self) if option.init}
        # Those of the queue as a whole are in its own slot: see `mq_django.stores.shares`.
        shared["rate_limit"], shared["concurrency"] = Limit(key=self.rate_limit.key), Limit(key=self.concurrency.key)
        shared["max_depth"] = None if self.max_depth is None else -(-self.max_depth // self.partitions)
        names = [partition_name(self.name, number) for number in range(self.partitions)]
        return tuple(PartitionConfig(**{**shared, "name": name, "number": n}) for n, name in enumerate(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConfig(QueueConfig):
    """A partition of a queue: a complete queue of its own, named `queue.number`."""

    number: int

    def new_id(self) -> str:
        """Return a new id, which names the partition."""
        return f"{ids.new_id()}{SEPARATOR}{self.number}"

    def _make_keys(self) -> QueueKeys:
        return queue_keys(self.namespace, tag_of(self.public_name, self.number, self.partitions))

    def _make_parts(self) -> "tuple[PartitionConfig, ...]":
        return ()


def likely_first(configs: Sequence[QueueConfig]) -> tuple[list[int], list[int]]:
    """Return the positions of the first partition of each queue, and of the others: see QueueConfig.places_of()."""
    seen: set[str] = set()
    likely, others = list[int](), list[int]()
    for at, config in enumerate(configs):
        (others if config.public_name in seen else likely).append(at)
        seen.add(config.public_name)
    return likely, others
