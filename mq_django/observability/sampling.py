"""Note once a minute how many messages queues have in each state, and what consumers have done by host and version.

Counters have the activity of queues by handler. The charts of the admin need these two besides, and no message pays for
them: they are read from the places of messages and from heartbeats.
"""

from collections.abc import Sequence
from contextlib import suppress
from operator import add

from mq_django.conf import get_config
from mq_django.consumers.service import Service
from mq_django.core import clock
from mq_django.core.keys import HostKeys
from mq_django.core.logs import get_logger
from mq_django.errors import NotPermitted, StoreError
from mq_django.inspector.queue_view import STATES, QueueView
from mq_django.inspector.queues import overview, transports_of, whole_configs
from mq_django.stores.counters import Worked, claim_sample, note_depths, note_work
from mq_django.transport.connections import open_transport

logger = get_logger(__name__)

#: Seconds between two samples.
EVERY = 60.0


class Sampler(Service):
    """Any number of processes may do so: one takes each sample."""

    name = "sampler"

    def __init__(self) -> None:
        super().__init__()
        self._keys = HostKeys(get_config().namespace)

    def run_once(self) -> float:
        """Take a sample of this minute, unless another process has."""
        # A Redis user for some queues may not have these keys: then the charts have only what queues count.
        with suppress(NotPermitted):
            if claim_sample(open_transport("inspect", ""), self._keys, 0.9 * EVERY):
                views = overview(minutes=0)
                self._note_depths(views)
                note_work(open_transport("inspect", ""), self._keys, worked(views))
        return EVERY - clock.now() % EVERY

    def _note_depths(self, views: Sequence[QueueView]) -> None:
        parts = {part.name: part for view in views for part in view.each_part if not part.error}
        configs = [part for config in whole_configs() for part in config.each_part if part.name in parts]
        depths = [{state: getattr(parts[config.name], state) for state in STATES} for config in configs]
        found = note_depths([config.keys for config in configs], transports_of(configs), depths)
        for config, error in zip(configs, found, strict=True):
            if isinstance(error, StoreError):
                logger.warning("Queue %s is not in this sample of the admin's metrics: %s", config.name, error)


def worked(views: Sequence[QueueView]) -> dict[str, Worked]:
    """Return what the live consumers of queues have done in all of these since they started."""
    found: dict[str, Worked] = {}
    for view in views:
        for one in view.consumers:
            if one.alive and one.is_process:
                before = found.get(one.id)
                counts = before[3:] if before else (0, 0, 0)
                more = (one.handled, one.failed, one.took_ms or 0)
                found[one.id] = Worked(one.host, one.release, one.since_ms, *map(add, counts, more))
    return found
