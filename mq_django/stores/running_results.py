"""Store in the results of tasks that they are running: see `mq_django.stores.results`."""

from collections.abc import Sequence
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import dumps
from mq_django.core.messages import Delivery
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

#: The beginning of the line of an attempt that has not ended.
RUNS = b'{"status":"RUNNING"'
#: Results that one script call writes.
BATCH = 500


class RunningTask(NamedTuple):
    """A delivery of a task that is running."""

    delivery: Delivery
    #: Milliseconds since 1970.
    started_ms: int


def note_running(wire: Wire, config: QueueConfig, consumer: str, tasks: Sequence[RunningTask]) -> None:
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
        reply_or_raise(wire.trip([scripts.command("results_running", keys=keys, args=lines)])[0])
