"""Say that this supervisor lives, and notice which do not."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.consumers.heartbeat_timing import held_for, interval, silence_limit
from mq_django.consumers.machine import has_ended, here
from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.stores import open_members
from mq_django.stores.members import Membership
from mq_django.transport.connections import open_session

logger = get_logger(__name__)

#: Consumers that no supervisor speaks for are nobody's we know. They get this many visibility timeouts.
UNKNOWN_PATIENCE = 5
#: The field of a supervisor that has its visibility timeout in milliseconds. Peers believe no more than the most.
VISIBILITY = "visibility_ms"
MAX_VISIBILITY_MS = 24 * 3600 * 1000


class Silence:
    """Judges by how long signs of life have stood still, on this process's monotonic clock.

    The clocks of other machines, and Redis's own, may step; a sign that changes is alive whatever they say. Only the
    time in which we could see counts: not while Redis did not answer, nor while we ourselves were stopped.
    """

    def __init__(self, limit: float, max_gap: float) -> None:
        self._limit = limit
        #: The longest time between two observations that counts as watching.
        self._max_gap = max_gap
        #: Name -> its sign, the seconds for which that has stood still, and how many mean death.
        self._last: dict[str, tuple[object, float, float]] = {}
        self._observed: float | None = None

    def forget(self) -> None:
        """Judge nobody before a full time has passed: we, or Redis, were away."""
        self._last.clear()

    def observe(
        self, signs: Mapping[str, object], now: float, *, blind: float = 0.0, limits: Mapping[str, float] | None = None
    ) -> list[str]:
        """Return who has been silent for too long; for `blind` seconds since the last time nothing could be seen.

        `limits` are the seconds of those with a limit of their own.
        """
        gap = 0.0 if self._observed is None else now - self._observed
        watched = max(0.0, min(gap - blind, self._max_gap))
        self._observed = now
        known, self._last = self._last, {}
        for name, sign in signs.items():
            last, silent, _ = known.get(name, (None, 0.0, 0.0))
            limit = (limits or {}).get(name, self._limit)
            self._last[name] = (sign, silent + watched if name in known and last == sign else 0.0, limit)
        return [name for name, (_, silent, limit) in self._last.items() if silent >= limit]

    def next_decision(self) -> float:
        """Return the seconds until somebody will be silent for too long who is not yet."""
        left = (limit - silent for _, silent, limit in self._last.values())
        return min((seconds for seconds in left if seconds > 0), default=self._limit)


class Announcement(NamedTuple):
    """Who a heartbeat speaks for."""

    supervisor: str
    description: Mapping[str, Any]
    consumers: Mapping[str, Mapping[str, Any]]
    #: Consumer -> what it does now and has done, for people, a value a queue.
    doing: Mapping[str, Sequence[Mapping[str, Any]]] = {}

    def of_queue(self, number: int) -> Mapping[str, Mapping[str, Any]]:
        """Return what to tell of the consumers in one queue."""
        return {
            name: {**announced, **self.doing[name][number]} if name in self.doing else announced
            for name, announced in self.consumers.items()
        }


class HeartbeatCallbacks(NamedTuple):
    """What a heartbeat asks and tells its supervisor, from its own thread. Queues go by their numbers."""

    announce: Callable[[], Announcement]
    #: (queue, announcement, moment): until this moment nobody takes those for dead.
    held: Callable[[int, Announcement, float], None]
    #: (announcement): others took us for dead.
    evicted: Callable[[Announcement], None]
    #: (queue, supervisor, membership): it is dead.
    dead: Callable[[int, str, Membership], None]
    #: (queue, consumer): it holds something, or did, and no supervisor announces it.
    unknown: Callable[[int, str], None]
    #: (consumer or supervisor -> "quiet" or "stop"): people ask for that, each told once.
    asked: Callable[[Mapping[str, str]], None]


class Heartbeat(Service):
    """Beats in every queue, removes consumers that have ended, and tells who is silent."""

    name = "heartbeat"

    def __init__(self, queues: Sequence[QueueConfig], callbacks: HeartbeatCallbacks) -> None:
        super().__init__()
        session = open_session("chores")
        self._queues = queues
        self._members = [open_members(config, session) for config in queues]
        self._callbacks = callbacks
        self._timeouts = [config.visibility_timeout.total_seconds() for config in queues]
        self._interval = min(interval(timeout) for timeout in self._timeouts)
        max_gap = self._interval * 1.5
        self._silences = [Silence(silence_limit(timeout), max_gap) for timeout in self._timeouts]
        self._unknown = [Silence(timeout * UNKNOWN_PATIENCE, max_gap) for timeout in self._timeouts]
        #: The generation of each queue, and the name under which we are known in it.
        self._known = [("", "")] * len(queues)
        self._departed: list[set[str]] = [set() for _ in queues]
        self._beaten = [0.0] * len(queues)
        #: What was asked so far, by whom it was asked of.
        self._asked: dict[str, str] = {}

    def depart(self, number: int, consumer: str) -> None:
        """Remove a consumer from a queue: it has ended and holds nothing there."""
        # Here and not by who asks: a heartbeat under way would write it down again.
        self._departed[number].add(consumer)

    def leave(self, supervisor: str) -> None:
        """Strike everybody of ours off, as the last thing: when the loop has ended."""
        try:
            self.each(
                range(len(self._members)),
                lambda number: self._members[number].leave(self._departed[number], supervisor=supervisor),
                called=self._name,
            )
        except StoreError as error:
            logger.warning("Supervisor %s remains registered until its heartbeat expires: %s", supervisor, error)

    def run_once(self) -> float:
        """Beat once in every queue."""
        began = time.monotonic()
        announcement = self._callbacks.announce()
        for step in (lambda number: self._beat(number, announcement), self._strike_off):
            self.each(range(len(self._queues)), step, called=self._name)
        decision = min(silence.next_decision() for silence in self._silences)
        return max(0.02, min(self._interval - (time.monotonic() - began), decision))

    def _name(self, number: int) -> str:
        return self._queues[number].name

    def recover(self, error: Exception) -> None:
        """Wait a full timeout before judging anybody: while Redis was away nobody could beat."""
        for silence in (*self._silences, *self._unknown):
            silence.forget()

    def _beat(self, number: int, announcement: Announcement) -> None:
        generation, known_as = self._known[number]
        first = known_as != announcement.supervisor
        began = time.monotonic()
        membership = self._members[number].beat(
            announcement.supervisor,
            {**announcement.description, VISIBILITY: round(self._timeouts[number] * 1000)},
            announcement.of_queue(number),
            generation="" if first else generation,
        )
        now = time.monotonic()
        if membership is None:
            logger.error("Others took supervisor %s for dead; it begins anew", announcement.supervisor)
            self._callbacks.evicted(announcement)
            return
        self._callbacks.held(number, announcement, began + held_for(self._timeouts[number]))
        if generation and membership.generation != generation:
            logger.error(
                "data_loss_suspected: queue %s was emptied behind our back, or its Redis lost data",
                self._queues[number].name,
            )
        self._known[number] = (membership.generation, announcement.supervisor)
        self._pass_on(announcement, membership.asks)
        self._look_around(number, announcement.supervisor, membership, now, blind=now - began)

    def _pass_on(self, announcement: Announcement, asks: Mapping[str, str]) -> None:
        """Tell what people ask of us, once."""
        ours = {announcement.supervisor, *announcement.consumers}
        news = {who: what for who, what in asks.items() if who in ours and self._asked.get(who) != what}
        if news:
            self._asked |= news
            self._callbacks.asked(news)

    def _look_around(self, number: int, supervisor: str, membership: Membership, now: float, *, blind: float) -> None:
        signs = membership.heartbeat_counts()
        signs.pop(supervisor, None)
        limits = {name: limit for name, announced in membership.supervisors.items() if (limit := _own_limit(announced))}
        silent = self._silences[number].observe(signs, now, blind=blind, limits=limits)
        for name in {*silent, *(name for name in signs if _is_gone(membership, name))}:
            self._callbacks.dead(number, name, membership)
        for name in self._unknown[number].observe(membership.unknown, now, blind=blind):
            self._callbacks.unknown(number, name)

    def _strike_off(self, number: int) -> None:
        if ended := list(self._departed[number]):
            stay = self._members[number].leave(ended)
            self._departed[number].difference_update(ended)
            for name in stay:
                self._callbacks.unknown(number, name)


def _own_limit(announced: Mapping[str, Any]) -> float | None:
    """Return the seconds of silence that mean death by what a supervisor says of itself; None if it says nothing.

    Its timeout may differ from ours, as in a rolling deploy that changes it; it beats and stops by its own.
    """
    ms = announced.get(VISIBILITY)
    return silence_limit(ms / 1000) if isinstance(ms, int) and 0 < ms <= MAX_VISIBILITY_MS else None


def _is_gone(membership: Membership, supervisor: str) -> bool:
    """Tell whether a supervisor ran on this machine, and neither it nor any of its consumers does any more."""
    machine, announced = here(), membership.supervisors.get(supervisor, {})
    if machine is None or (announced.get("boot"), announced.get("pids")) != machine:
        return False
    return not any(
        _runs(process)
        for process in (announced, *(membership.consumers[name] for name in membership.consumers_of(supervisor)))
    )


def _runs(announced: Mapping[str, Any]) -> bool:
    pid, moment = announced.get("pid"), announced.get("started")
    # Without these nothing is known; the heartbeat then decides.
    return not isinstance(pid, int) or pid < 1 or not moment or not has_ended(pid, moment)
