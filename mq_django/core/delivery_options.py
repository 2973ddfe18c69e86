"""The options that queues and topics share, and their partitions, as a frozen value."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from mq_django.core import ids
from mq_django.core.options import (
    option,
    read_count,
    read_durability,
    read_expired,
    read_optional_period,
    read_outbox,
    read_own_connection,
    read_partitions,
    read_retry,
    read_size,
    read_visibility_timeout,
)
from mq_django.core.partition_keys import PartitionKeys
from mq_django.core.partitions import (
    SEPARATOR,
    in_turn,
    number_in_id,
    partition_name,
    partition_of,
    public_name,
    tag_of,
)
from mq_django.core.retries import RetryPolicy


def own_keys() -> Any:
    """Return the field for the Redis keys of a queue or a topic, which __post_init__ fills."""
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """The options that queues and topics share: how their messages are handled.

    A partition is a complete queue or topic with the same options, named `name.number`.
    """

    name: str
    namespace: str = "mq"
    connection: str = field(
        default="",
        metadata=option(
            read_own_connection,
            "A server of its own: a value as for the `CONNECTION` of the project, which is the default.",
            shown="that of the project",
        ),
    )
    durability: str = field(
        default="master",
        metadata=option(
            read_durability,
            'With `"replica"` a publish [waits until a replica has the message](reliability.md#durability), and raises '
            "`NotReplicated` if none has it after half a second.",
        ),
    )
    max_attempts: int = field(
        default=25,
        metadata=option(read_count, "The number of failed deliveries after which a message becomes a dead letter."),
    )
    retry: RetryPolicy = field(
        default=RetryPolicy(),
        metadata=option(
            read_retry,
            "A `RetryPolicy`, or a dict of its arguments: `delay` (1 s), `factor` (2), `max_delay` (1 h), "
            "`jitter` (0.25), `max_attempts`, `bury_on`.",
            shown="`{}`",
        ),
    )
    timeout: timedelta | None = field(
        default=None, metadata=option(read_optional_period, "How long a handler may run.")
    )
    visibility_timeout: timedelta = field(
        default=timedelta(seconds=10),
        metadata=option(
            read_visibility_timeout,
            "When a supervisor has sent no heartbeat for this long, the messages of its consumers are reassigned. 1 s "
            "to a day. How long a handler runs does not matter. Each supervisor announces its own value, so values may "
            "differ, as in a rolling deploy.",
        ),
    )
    max_size: int = field(
        default=256 * 1024,
        metadata=option(read_size, "The most bytes of JSON of a message's data.", is_bytes=True),
    )
    expired: str = field(
        default="discard",
        metadata=option(
            read_expired,
            'What becomes of a message that was not handled before its `expires`: with `"discard"` only its id is '
            'kept, for a week; with `"bury"` it becomes a dead letter.',
        ),
    )

    partitions: int = field(
        default=1,
        metadata=option(
            read_partitions,
            "The number of [partitions](partitions.md): complete queues or topics behind this name, which a Redis "
            "Cluster spreads over its nodes. It is recorded in Redis, and `manage.py mq repartition` changes that of a "
            "queue.",
        ),
    )
    outbox: bool | Literal["handled"] = field(
        default=False,
        metadata=option(
            read_outbox,
            "Each publish writes a row of the [outbox](transactions.md#outbox) into the database, in the same "
            "transaction, and a relay publishes it after the commit. "
            '`{"KEEP_UNTIL": "handled"}`: of a queue, [rows stay until their messages are '
            "handled](transactions.md#rows-that-stay-until-the-message-is-handled).",
        ),
    )
    #: Of a partition its number, from 0; else -1.
    number: int = -1
    keys: PartitionKeys = own_keys()
    #: Its partitions; none if there is only one, or this is one.
    parts: tuple[Self, ...] = own_keys()

    #: Options of a publish that are not supported, "step" for the steps of workflows -> the text of the error.
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: What has the number of partitions, and what to do about another one in Redis, as templates.
    counted_as: ClassVar[str] = "Queue {config.public_name!r}"
    other_count: ClassVar[str] = "run `manage.py mq repartition {config.public_name} {config.partitions}`"
    #: The pattern of ids; None: any text.
    id_form: ClassVar[re.Pattern[str] | None] = None
    #: The name of messages whose text is sent as it is, without attributes; None: there are none.
    text_name: ClassVar[str | None] = None

    @property
    def public_name(self) -> str:
        """Return the name that handlers and publishers use: of a partition that of its queue."""
        return public_name(self.name)

    @property
    def each_part(self) -> Sequence[Self]:
        """Return the partitions, or this itself if it has none: what has messages and consumers."""
        return self.parts or (self,)

    @property
    def is_partition(self) -> bool:
        """Return whether this is a partition."""
        return self.number >= 0

    @property
    def id_end(self) -> str:
        """Return the end of ids that are made here: of a partition its number, after a dot; else ""."""
        return f"{SEPARATOR}{self.number}" if self.is_partition else ""

    def new_id(self) -> str:
        """Return a new id of a message. It names the partition, if this is one."""
        return ids.new_id() + self.id_end

    def place_of(self, *, key: str | None, unique: str | None = None, message_id: str | None = None) -> Self:
        """Return where a new message belongs: this, or the one of its partitions.

        It is chosen by the key, else by the unique key, else by a given id, else in turn.
        """
        if not self.parts:
            return self
        named = key or unique
        if named is None and message_id is not None:
            # A generated id may be given again. It is looked for where it says.
            return self.places_of(message_id)[0]
        return self.parts[in_turn(len(self.parts)) if named is None else partition_of(named, len(self.parts))]

    def places_of(self, message_id: str) -> Sequence[Self]:
        """Return the partitions in which a message may be, the likely one first: that which its id names.

        It may be in another one since the number of partitions was changed.
        """
        likely, number = self.places_by(message_id), number_in_id(message_id)
        if number is None or number >= len(self.parts):
            return likely
        named = self.parts[number]
        return named, *(part for part in likely if part is not named)

    def places_by(self, name: str) -> Sequence[Self]:
        """Return the partitions in which the message with a unique key or a given id may be, the likely one first."""
        if not self.parts:
            return (self,)
        likely = partition_of(name, len(self.parts))
        return self.parts[likely], *self.parts[:likely], *self.parts[likely + 1 :]

    def lacking(self, option: str) -> str | None:
        """Return why an option of a publish is not supported, as a template of the error; None: it is."""
        return self.lacks.get(option)

    @property
    def keeps_rows(self) -> bool:
        """Return whether the rows of the outbox are kept until their messages are handled."""
        return self.outbox == "handled"

    @property
    def keeps_results(self) -> bool:
        """Return whether the results of tasks are kept."""
        return False

    @property
    def _tag(self) -> str:
        """What stands in braces in its keys."""
        return tag_of(self.public_name, self.number, self.partitions) if self.is_partition else self.name

    def _make_parts(self) -> tuple[Self, ...]:
        if self.partitions == 1 or self.is_partition:
            return ()
        shared = self._of_a_part()
        return tuple(
            replace(self, **shared, number=number, **self._names_of(number)) for number in range(self.partitions)
        )

    def _names_of(self, number: int) -> dict[str, Any]:
        """Return the options with the name of a partition."""
        return {"name": partition_name(self.name, number)}

    def _of_a_part(self) -> dict[str, Any]:
        """Return the options in which partitions differ from the whole."""
        return {}
