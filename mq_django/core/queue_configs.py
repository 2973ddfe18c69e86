"""The options of queues as frozen values. `mq_django.conf` reads them from the settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar

from mq_django.core.delivery_options import DeliveryOptions, own_keys
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
    read_rate_limit,
    read_result_ttl,
    read_store,
    read_switch,
)

STORE = option(
    read_store,
    'The format of the queue in Redis: `"rsmq"` for [queues shared with other programs](#queues-in-rsmqs-format).',
)

#: Cached, because configs may be made again, and making the keys takes 5 µs.
queue_keys = cache(QueueKeys)


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
    store: str = field(default="stream", metadata=STORE)
    keys: QueueKeys = own_keys()

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self._make_keys())
        object.__setattr__(self, "parts", self._make_parts())

    def _make_keys(self) -> QueueKeys:
        return queue_keys(self.namespace, self._tag)

    def _of_a_part(self) -> dict[str, Any]:
        """See DeliveryOptions. Limits of the whole are in its own slot: see `mq_django.stores.shares`."""
        return {
            "rate_limit": Limit(key=self.rate_limit.key),
            "concurrency": Limit(key=self.concurrency.key),
            "max_depth": None if self.max_depth is None else -(-self.max_depth // self.partitions),
        }


def likely_first(configs: Sequence[QueueConfig]) -> tuple[list[int], list[int]]:
    """Return the positions of the first partition of each queue, and of the others: see QueueConfig.places_of()."""
    seen: set[str] = set()
    likely, others = list[int](), list[int]()
    for at, config in enumerate(configs):
        (others if config.public_name in seen else likely).append(at)
        seen.add(config.public_name)
    return likely, others
