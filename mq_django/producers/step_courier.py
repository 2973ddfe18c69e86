"""Pass the notes of queues about steps on to their runs, and publish what may start then."""

from collections import defaultdict
from collections.abc import Sequence

from mq_django.conf import QueueConfig
from mq_django.producers.step_starts import advance, open_home
from mq_django.stores.step_notes import Note, StepNotes
from mq_django.stores.workflow_home import BATCH, Event
from mq_django.transport.sessions import Wire


class StepCourier:
    """Delivers the notes of one queue. Whoever delivers a note a second time changes nothing."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._notes = StepNotes(config.keys, wire)

    def deliver(self, message_ids: Sequence[str]) -> None:
        """Deliver the notes about these messages."""
        if message_ids:
            self._deliver(self._notes.read(message_ids))

    def deliver_left(self, *, age_ms: int) -> int:
        """Deliver the notes that are older than this, which processes that have ended have left; return how many."""
        cursor, delivered = "", 0
        while cursor != "0":
            cursor, found = self._notes.left(age_ms=age_ms, cursor=cursor or "0")
            self._deliver(found)
            delivered += len(found)
        return delivered

    def _deliver(self, notes: Sequence[Note]) -> None:
        by_run: dict[str, list[Event]] = defaultdict(list)
        for note in notes:
            if note.step is not None:
                by_run[note.step.run].append(note.event)
        for run_id, events in by_run.items():
            home = open_home(run_id)
            for at in range(0, len(events), BATCH):
                advance(home, run_id, events[at : at + BATCH])
        if notes:
            self._notes.forget(notes)
