"""The options of queues in RSMQ's format, as a frozen value."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import ClassVar

from mq_django.core import rsmq_format
from mq_django.core.delivery_options import own_keys
from mq_django.core.limits import Limit, Rate, Weights
from mq_django.core.options import option, read_delay, read_maxsize, read_rsmq_namespace, read_switch, read_vt
from mq_django.core.queue_configs import STORE, QueueConfig
from mq_django.core.rsmq_format import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mq_django.core.rsmq_keys import RsmqKeys

rsmq_keys = cache(RsmqKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RsmqConfig(QueueConfig):
    """The options of a queue in RSMQ's format, shared with programs in other languages."""

    namespace: str = field(
        default="rsmq",
        metadata=option(read_rsmq_namespace, 'RSMQ\'s `ns`. On a Redis Cluster it carries the hash tag: `"{rsmq}"`.'),
    )
    visibility_timeout: timedelta = field(
        default=timedelta(seconds=DEFAULT_VT),
        metadata=option(
            read_vt,
            "Seconds from 1: the `vt` of a new queue, and how long our consumers hide the messages that they take.",
            name="VT",
        ),
    )
    delay: int = field(
        default=DEFAULT_DELAY,
        metadata=option(read_delay, "Seconds: the `delay` of a new queue."),
    )
    maxsize: int = field(
        default=DEFAULT_MAXSIZE,
        metadata=option(read_maxsize, "UTF-16 units, or -1: the `maxsize` of a new queue."),
    )
    realtime: bool = field(
        default=False,
        metadata=option(read_switch, "Publish on RSMQ's channel after each send, and rely on other programs to do so."),
    )
    store: str = field(default="rsmq", metadata=STORE)
    keys: RsmqKeys = own_keys()
    # An RSMQ queue does not have these options.
    max_size: int = 1024 * 1000
    result_ttl: timedelta = timedelta(0)
    keep_handled: timedelta | None = None
    keep_handled_count: int = 0
    keep_handled_data: bool = False
    rate_limit: Limit[Rate] = Limit()
    concurrency: Limit[int] = Limit()
    ordered: bool = False
    after_bury: str = "continue"
    fair: Weights | None = None
    partitions: int = 1
    outbox: bool = False

    has_schedules: ClassVar[bool] = False
    keeps_running: ClassVar[str] = "Queue {config.name!r} has RSMQ's format: only waiting messages can be cancelled"
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "priority": "Queue {config.name!r} has RSMQ's format, which has no priorities",
            "unique": "Queue {config.name!r} has RSMQ's format, which has no unique keys",
            "outbox": "Queue {config.name!r} has RSMQ's format, which has no outbox",
            "step": "Queue {config.name!r} has RSMQ's format, which has no steps of workflows",
            "message_id": "Queue {config.name!r} has RSMQ's format, which has no ids such as {value!r}: "
            "they have 32 letters and digits",
        }
    )
    id_form: ClassVar[re.Pattern[str] | None] = rsmq_format.MESSAGE_ID
    text_name: ClassVar[str | None] = rsmq_format.TEXT

    def new_id(self) -> str:
        """See DeliveryOptions.new_id(): an id as RSMQ makes them."""
        return rsmq_format.new_id()

    def _make_keys(self) -> RsmqKeys:
        return rsmq_keys(self.namespace, self.name)

    @property
    def vt(self) -> int:
        """Return the visibility timeout in whole seconds, RSMQ's unit."""
        return math.ceil(self.visibility_timeout.total_seconds())
