"""The services of a supervisor for the queues on one server."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from mq_django.consumers.service import ServerQueues, Service, connection_of, open_session_to, open_stores
from mq_django.consumers.supervisor.chores import HistoryTrimmer, JobRunner
from mq_django.consumers.supervisor.heartbeat import Announcement, Heartbeat, HeartbeatCallbacks
from mq_django.consumers.supervisor.promoter import Promoter, measured_promotions
from mq_django.consumers.supervisor.reclaimer import Reclaimer
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.consumers.supervisor.worker_set import Preferences, WorkerStates
from mq_django.core.logs import get_logger
from mq_django.stores.base import Promoted, StreamEntry
from mq_django.stores.handled import MessageHistory
from mq_django.stores.members import ANY_NAME
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import open_session
from mq_django.transport.subscription import Subscription

# Receive notifications that should not wait for the next poll: an earlier due time, a pause.

#: Seconds that a read of the subscription waits.
LISTEN = 5.0
#: Reported for a channel when its subscription begins, because earlier notifications were missed.
SUBSCRIBED = "subscribed"


class Listener(Service):
    """Subscribes to the wake channels of the queues. Pub/sub may lose notifications, so all queues are polled, too."""

    name = "listener"

    def __init__(self, session: AnySession, channels: Mapping[str, int], heard: Callable[[int, str], None]) -> None:
        super().__init__()
        self._subscription = Subscription(session, list(channels))
        self._channels = channels
        self._heard = heard
        #: Whether the subscription is active.
        self.is_subscribed = False

    def run_once(self) -> float:
        """Wait for notifications and report them."""
        if self._subscription.open():
            self.is_subscribed = True
            for number in self._channels.values():
                self._heard(number, SUBSCRIBED)
        for channel, text in self._subscription.messages(LISTEN):
            self._heard(self._channels[channel], text.decode(errors="replace"))
        return 0.0

    def recover(self, error: Exception) -> None:
        """Subscribe again."""
        self.close()

    def stop(self) -> None:
        """End the loop, and interrupt its wait."""
        super().stop()
        self._subscription.interrupt()

    def close(self) -> None:
        """Close the subscription."""
        self.is_subscribed = False
        self._subscription.close()


# Make unhandled messages ready while consumers in other programs announce that they handle them.

#: Messages released by one script call, and in one round of a queue that our consumers fetch from, too. These set the
#: messages that they get aside again, so the others get a share of each small round, and most of a large one is lost.
BATCH, PORTION = 500, 50
#: Seconds between two rounds after messages were released, and at most this share of the time is spent on rounds.
AGAIN, SHARE = 0.05, 0.05
#: Seconds between two rounds while there are unhandled messages, and otherwise, unless the service is woken.
TICK, RELEASER_IDLE = 1.0, 60.0


class AnnouncedReleaser(Service):
    """Releases unhandled messages of the names that consumers announce. Our own consumers release theirs themselves."""

    name = "releaser"

    def __init__(self, queues: ServerQueues) -> None:
        super().__init__()
        self._stores = open_stores(queues)
        #: By queue: the announced names, and the number of unhandled messages at the latest promotion.
        self._names: dict[int, Collection[str]] = dict.fromkeys(queues, ())
        self._unhandled = dict.fromkeys(queues, 0)
        self._is_idle = True
        #: The number of messages that the latest round has released.
        self._released = 0

    def announced(self, number: int, names: Collection[str]) -> None:
        """Set the names that the consumers of a queue announce."""
        self._names[number] = names
        self._wake_for(number)

    def seen(self, number: int, unhandled: int) -> None:
        """Set how many unhandled messages a queue has."""
        self._unhandled[number] = unhandled
        self._wake_for(number)

    def run_once(self) -> float:
        """Release the messages of each queue that has unhandled messages and announced names."""
        numbers = [number for number in self._stores if self._needs_round(number)]
        self._is_idle, self._released, began = not numbers, 0, time.monotonic()
        self.each(numbers, self._release, called=lambda number: self._stores[number].config.name)
        if self._released:
            return min(TICK, max(AGAIN, (time.monotonic() - began) / SHARE))
        return TICK if numbers else RELEASER_IDLE

    def _needs_round(self, number: int) -> bool:
        return bool(self._unhandled[number] and self._names[number])

    def _wake_for(self, number: int) -> None:
        if self._is_idle and self._needs_round(number):
            self.wake()

    def _release(self, number: int) -> None:
        store, names = self._stores[number], self._names[number]
        found = None if ANY_NAME in names else names
        if not store.config.external:
            self._released += store.release_unhandled(found, limit=max(1, PORTION // len(found or [ANY_NAME])))
            return
        # No more than there were: consumers with older code may set messages aside again at once.
        left = self._unhandled[number]
        while left > 0 and not self.stopping and (moved := store.release_unhandled(found, limit=BATCH)):
            left -= moved
            self._released += moved
            self.progressed = time.monotonic()


# Reset the idle time of deliveries whose handlers run for long.

logger = get_logger(__name__)

#: Deliveries are extended this many times per visibility timeout, first after the first such interval.
PER_TIMEOUT = 7


class Extender(Service):
    """Extends the deliveries that have run for long, by the shared states.

    mq_django itself uses heartbeats, not idle time. This is for operators who inspect the stream, and for consumers of
    other software.
    """

    name = "extender"

    def __init__(self, queues: ServerQueues, states: WorkerStates) -> None:
        super().__init__()
        self._stores = open_stores(queues)
        self._steps = {n: config.visibility_timeout.total_seconds() / PER_TIMEOUT for n, config in queues.items()}
        self._states = states
        self._lost: set[tuple[int, StreamEntry]] = set()

    def run_once(self) -> float:
        """Extend the deliveries that have run for long enough."""
        now = time.monotonic()
        found: dict[tuple[int, str], list[StreamEntry]] = defaultdict(list)
        seen: set[tuple[int, StreamEntry]] = set()
        for consumer, running in self._states.running().items():
            for item in running:
                receipt, since = item.receipt, item.since
                number, stream, entry = receipt
                if number not in self._stores:
                    continue
                seen.add((number, (stream, entry)))
                # Only RSMQ has ids this long, and heartbeats of RSMQ queues extend everything that is held.
                if now - since >= self._steps[number] and not receipt.is_digest:
                    found[number, consumer].append((stream, entry))
        self._lost &= seen
        self.each(found.items(), lambda one: self._extend(*one[0], one[1]), called=lambda one: self._name(one[0][0]))
        return min(self._steps.values())

    def _name(self, number: int) -> str:
        return self._stores[number].config.name

    def _extend(self, number: int, consumer: str, receipts: Sequence[StreamEntry]) -> None:
        known = [receipt for receipt in receipts if (number, receipt) not in self._lost]
        for stream, entry in self._stores[number].extend(consumer, known):
            self._lost.add((number, (stream, entry)))
            logger.warning(
                "Consumer %s still runs entry %s of queue %s, which it no longer holds",
                *(consumer, entry, self._name(number)),
            )


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
            measured_promotions(open_stores(queues, session := open_session_to(queues))),
            transport=session,
            is_subscribed=lambda: self._listener.is_subscribed,
            seen=self._seen,
        )
        self._job_runner = JobRunner(queues, supervisor)
        self._scheduler = Scheduler.of(queues)
        self.services: tuple[Service, ...] = (
            *(self.heartbeat, self.reclaimer, self._listener),
            *(self._promoter, Extender(queues, states), self._scheduler, self._job_runner, self._releaser),
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
        if text in ("cancels", "stacks", "holds", SUBSCRIBED):
            self._states.note_requests(number)
        if text in ("asked", SUBSCRIBED):
            self.heartbeat.wake()
        if text in ("job", SUBSCRIBED):
            self._job_runner.expect(number)
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
    keeping = [config for config in queues.values() if config.history is not None]
    if not keeping:
        return []
    session = open_session_to(queues)
    return [HistoryTrimmer([MessageHistory(config, session) for config in keeping])]
