"""The services of a supervisor for the queues on one server."""

from collections.abc import Callable, Mapping

from mq_django.consumers.by_server import ServerQueues, connection_of, open_session_to, open_stores
from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.extender import Extender
from mq_django.consumers.supervisor.heartbeat import Announcement, Heartbeat, HeartbeatCallbacks
from mq_django.consumers.supervisor.history_trimmer import HistoryTrimmer
from mq_django.consumers.supervisor.listener import SUBSCRIBED, Listener
from mq_django.consumers.supervisor.measured_promotion import measured_promotions
from mq_django.consumers.supervisor.preferences import Preferences
from mq_django.consumers.supervisor.promoter import Promoter
from mq_django.consumers.supervisor.reclaimer import Reclaimer
from mq_django.consumers.supervisor.redriver import Redriver
from mq_django.consumers.supervisor.releaser import AnnouncedReleaser
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.consumers.supervisor.worker_states import WorkerStates
from mq_django.stores.base import Promoted
from mq_django.stores.handled import MessageHistory
from mq_django.transport.connections import open_session


class ServerServices:
    """What a supervisor does for the queues on one server, each part in a thread of its own.

    Args:
        queues: the queues on the server.
        states: the consumers of the supervisor.
        supervisor: the id under which background jobs are leased.
        announce, evicted, asked: see HeartbeatCallbacks.
    """

    def __init__(
        self,
        queues: ServerQueues,
        states: WorkerStates,
        supervisor: str,
        *,
        announce: Callable[[], Announcement],
        evicted: Callable[[Announcement], None],
        asked: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.queues = queues
        self._states = states
        #: Queue -> the numbers of requests to its consumers, as the last heartbeat has returned them.
        self._known_requests: dict[int, str] = {}
        self.reclaimer = Reclaimer(queues, settled=self._settled)
        self._releaser = AnnouncedReleaser(queues)
        on_silence = (self.reclaimer.supervisor_died, self.reclaimer.consumer_unknown)
        callbacks = HeartbeatCallbacks(
            announce,
            self._held,
            evicted,
            *on_silence,
            asked,
            self._releaser.announced,
            self._requests,
            Preferences(queues, states).seen,
        )
        self.heartbeat = Heartbeat(queues, callbacks)
        numbers = {config.keys.wake: number for number, config in queues.items()}
        self._listener = Listener(open_session("consume", connection_of(queues)), numbers, self._heard)
        self._promoter = Promoter(
            measured_promotions(open_stores(queues)),
            is_subscribed=lambda: self._listener.is_subscribed,
            seen=self._seen,
        )
        self._redriver = Redriver(queues, supervisor)
        self._scheduler = Scheduler.of(queues)
        others = (self._promoter, Extender(queues, states), self._scheduler, self._redriver)
        self.services: tuple[Service, ...] = (
            *(self.heartbeat, self.reclaimer, self._listener),
            *others,
            self._releaser,
            *_history_trimmers(queues),
        )

    def introduce_consumers(self) -> None:
        """Announce new consumers, which fetch nothing before, and tell them which queues are paused."""
        self.heartbeat.wake()
        for number in self.queues:
            self._promoter.expect(number)

    def _held(self, number: int, announcement: Announcement, until: float, since: float) -> None:
        self._states.held(
            number, announcement, until, lambda consumer: max(since, self.reclaimer.handed_back_at(consumer))
        )

    def _settled(self, number: int, consumer: str) -> None:
        self.heartbeat.depart(number, consumer)

    def _requests(self, number: int, counts: str) -> None:
        """Tell the consumers if the numbers of requests have changed: a notification may have been lost."""
        before, self._known_requests[number] = self._known_requests.get(number), counts
        if before not in (None, counts):
            self._states.note_requests(number)

    def _heard(self, number: int, text: str) -> None:
        if text in ("paused", "resumed"):
            self._states.pause(number, text == "paused")
        if text in ("cancels", "stacks", SUBSCRIBED):
            self._states.note_requests(number)
        if text in ("asked", SUBSCRIBED):
            self.heartbeat.wake()
        if text in ("job", SUBSCRIBED):
            self._redriver.expect(number)
        if text in ("schedules", SUBSCRIBED):
            self._scheduler.expect(self.queues[number].name)
        if text not in ("asked", "job", "schedules", "cancels", "stacks"):
            self._promoter.expect(number)

    def _seen(self, number: int, promoted: Promoted) -> None:
        self._states.pause(number, promoted.paused)
        self._states.set_unhandled(number, bool(promoted.unhandled))
        self._releaser.seen(number, promoted.unhandled)


def _history_trimmers(queues: ServerQueues) -> list[HistoryTrimmer]:
    """Return the service that trims histories, if a queue keeps one."""
    keeping = [config for config in queues.values() if config.keep_handled is not None]
    if not keeping:
        return []
    session = open_session_to(queues)
    return [HistoryTrimmer([MessageHistory(config, session) for config in keeping])]
