"""The reports of the running handlers of one queue."""

import threading
from collections.abc import Iterable, Sequence

from mq_django.conf import QueueConfig
from mq_django.core.outcomes import Ack, Outcome
from mq_django.core.progress import Interrupted
from mq_django.core.reports import Report, ReportSlot
from mq_django.stores.base import Settlement, StreamEntry
from mq_django.stores.progress_reports import ended_command
from mq_django.transport.scripts import Command


class ReportBook:
    """The reports of the running handlers of one queue in this process. It has none of handlers that do not report."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self._reports: dict[StreamEntry, Report] = {}
        #: The last reports of handlers that have ended, by delivery, until these are settled.
        self.ended: dict[StreamEntry, tuple[Report, bool, bool]] = {}
        #: The process stops: `resumable()` interrupts its handlers.
        self.stopping = threading.Event()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._reports)

    def end(self, slot: ReportSlot, outcome: Outcome) -> None:
        """Note that a handler has ended. What it has reported is saved when its delivery is settled."""
        slot.is_over = True
        report = slot.report
        if report is None:
            return
        receipt = (report.delivery.stream, report.delivery.entry)
        with self._lock:
            self._reports.pop(receipt, None)
            if not report.lost:
                # After a rollback the positions are too far.
                self.ended[receipt] = (report, isinstance(outcome, Ack), slot.is_undone)

    def is_interrupt(self, error: BaseException) -> bool:
        """Return whether a handler was interrupted because the process stops."""
        return isinstance(error, Interrupted) and self.stopping.is_set()

    def changed(self) -> list[Report]:
        """Return the reports of running handlers that are not saved."""
        with self._lock:
            return [report for report in self._reports.values() if report.changed and not report.lost]

    def ended_commands(self, batch: Sequence[Settlement]) -> list[Command]:
        """Return the commands that save the last reports of a batch, for the round trip that settles it."""
        found = [self.ended.get((each.delivery.stream, each.delivery.entry)) for each in batch]
        return [ended_command(self.config, *each) for each in found if each is not None]

    def forget(self, receipts: Iterable[StreamEntry]) -> None:
        """Forget the last reports of deliveries that are settled."""
        with self._lock:
            for receipt in receipts:
                self.ended.pop(receipt, None)

    def opened(self, slot: ReportSlot) -> Report:
        """Return the report of a run, which is made when its handler reports for the first time."""
        with self._lock:
            if slot.report is None:
                slot.report = Report(delivery=slot.delivery, config=self.config, stopping=self.stopping)
                self._reports[slot.delivery.stream, slot.delivery.entry] = slot.report
            return slot.report
