"""For how long the handlers of pending messages have been running, as of the last heartbeats."""

from collections.abc import Mapping

from mq_django.inspector.message_views import EntrySource, EntryView
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.readers import open_reader

#: Consumer, place and entry of a running message -> for how long it has been running, in ms.
RunTimes = Mapping[tuple[str, EntrySource, bytes], int]


def run_times(queue: QueueView) -> RunTimes:
    """Return the run times of the messages that live consumers are handling: of each consumer the longest 20."""
    place_of = open_reader(queue.name).place_of
    found = {
        (consumer.id, place_of((item.source, item.entry))): item.ms
        for consumer in queue.consumers
        if consumer.alive
        for item in consumer.running
    }
    return {(name, *place): ms for (name, place), ms in found.items() if place is not None}


def run_time(view: EntryView, times: RunTimes) -> int | None:
    """Return for how long a message has been running, in ms; None if no consumer has announced that it runs."""
    return times.get((view.consumer, view.source, view.entry))
