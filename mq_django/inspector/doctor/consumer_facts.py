"""What queues, topics and heartbeats say, read once for all looks at them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview
from mq_django.inspector.topics import TopicView, topics


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """All queues and groups with their consumers, and all topics."""

    queues: Sequence[QueueView]
    topics: Sequence[TopicView]

    @property
    def readable(self) -> list[QueueView]:
        """Return the queues that could be read."""
        return [queue for queue in self.queues if not queue.error]

    @property
    def supervisors(self) -> Mapping[str, ConsumerView]:
        """Return a live consumer of each live supervisor, or the supervisor itself, which knows its description."""
        members = (one for queue in self.readable for one in (*queue.consumers, *queue.housekeepers))
        return {one.supervisor: one for one in members if one.alive}


def queue_facts() -> QueueFacts:
    """Read all queues and topics.

    Raises:
        StoreError: cannot reach Redis.
    """
    return QueueFacts(queues=overview(minutes=0), topics=topics())
