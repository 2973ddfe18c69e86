"""The options that queues and topics share, as a frozen value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import ClassVar

from mq_django.core import ids
from mq_django.core.options import (
    option,
    read_count,
    read_durability,
    read_expired,
    read_optional_period,
    read_own_connection,
    read_retry,
    read_size,
    read_visibility_timeout,
)
from mq_django.core.partitions import public_name
from mq_django.core.retries import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """The options that queues and topics share: how their messages are handled."""

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

    #: Options of a publish that are not supported, "step" for the steps of workflows -> the text of the error.
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: The pattern of ids; None: any text.
    id_form: ClassVar[re.Pattern[str] | None] = None
    #: The name of messages whose text is sent as it is, without attributes; None: there are none.
    text_name: ClassVar[str | None] = None
    #: Makes the ids of messages.
    new_id = staticmethod(ids.new_id)

    @property
    def public_name(self) -> str:
        """Return the name that handlers and publishers use: of a partition that of its queue."""
        return public_name(self.name)

    def place_of(
        self, *, key: str | None, unique: str | None = None, message_id: str | None = None
    ) -> "DeliveryOptions":
        """Return where a new message belongs: this, or the one of its partitions."""
        return self

    def lacking(self, option: str) -> str | None:
        """Return why an option of a publish is not supported, as a template of the error; None: it is."""
        return self.lacks.get(option)

    @property
    def keeps_results(self) -> bool:
        """Return whether the results of tasks are kept."""
        return False
